"""Decide whether the next round and its evaluation fit the budget, and who may take part."""

import math
from collections.abc import Callable, Sequence

from privacy.accounting.accountant import epsilon_of
from privacy.accounting.budget import BudgetExceededError, PrivacyBudget, check_budget
from privacy.accounting.events import PrivacyEvent
from privacy.accounting.ledger_chain import NotedHead
from privacy.accounting.onlookers import Epsilons, is_hidden
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.plan_events import attempt_event, budgets_of, events_of
from privacy.noise.settings import PrivacySettings
from server.budget.round_entries import RoundEntries
from server.budget.shortage import shortage_of
from server.config.evaluation_rules import coming_evaluations
from server.config.federation import FederationConfig
from server.config.start_lines import outlook
from server.devices.clients import eligible_clients, population
from server.records.ledger import ledger_events
from server.records.store import Store


class RoundGate:
    """The gate before each attempt of one run, coordinated or simulated; all of it blocks.

    Attributes:
        newest: ε against each onlooker after the newest attempt that was admitted, or by the ledger
            of a start; None before one, or where nothing is promised.
    """

    def __init__(
        self,
        config: FederationConfig,
        store: Store,
        run: str,
        *,
        published: Callable[[], NotedHead | None],
    ) -> None:
        """Hold the ledger against the newest release on the disk, which ``published`` reads."""
        self._config = config
        self._store = store
        self._run = run
        self._published = published
        self.newest: Epsilons | None = None
        self._admitted: tuple[tuple[int, int], Epsilons | None] | None = None
        self.entries = RoundEntries(config, store, run)

    @property
    def limits_who_comes(self) -> bool:
        """Return whether the mode says how often one person takes part."""
        return isinstance(self._config.privacy, TreeNoise)

    @property
    def hides_counts(self) -> bool:
        """Return whether how many took part is a secret of the coins."""
        return self._config.rounds.selection == "sampled"

    @property
    def hides_figures(self) -> bool:
        """Return whether figures of a round's updates stay secret; see ``hides_figures``."""
        return hides_figures(self._config.privacy)

    @property
    def hides_refusals(self) -> bool:
        """Return whether the codes that devices refuse with stay out of a release.

        They are no function of noised updates, which is all that ``local`` accounts for.
        """
        return self._config.privacy.guarantees_privacy

    @property
    def cap(self) -> int:
        """Number of the run's last round."""
        return self._config.rounds.cap

    def spent(self) -> list[PrivacyEvent]:
        """Return every event that the run's ledger holds, oldest first, after checking it.

        Raises:
            LedgerError: If the ledger was changed, lost its end or belongs to another run.
            ReleaseError: If the record of the newest release cannot be read.
        """
        return ledger_events(self._store, self._run, self._published())

    def outlook(self, next_round: int, attempt: int = 0) -> list[str]:
        """Return lines on what the run promises and will have spent.

        Raises:
            LedgerError: If the ledger was changed, lost its end or belongs to another run.
        """
        spent = self.spent()
        self.newest = self._epsilons_of(spent)
        is_paid = self.entries.is_paid(next_round, attempt)
        return outlook(self._config, spent=spent, first_round=next_round, is_paid=is_paid)

    def admit(self, round_number: int, attempt: int = 0) -> Epsilons | None:
        """Return ε after this attempt and its round's evaluation; None if nothing is promised.

        Asked before an attempt is opened, and again before its round is closed. An attempt that the
        ledger holds is closed whatever is left of the budget that it was paid from: the release
        shows that onlooker nothing more.

        Raises:
            BudgetExceededError: If they would pass the budget.
            LedgerError: If the ledger was changed, lost its end or belongs to another run.
        """
        asked = (round_number, attempt)
        if self._admitted is None or self._admitted[0] != asked:
            self._admitted = (asked, self._epsilons_after(round_number, attempt))
        self.newest = self._admitted[1]
        return self.newest

    def population(self, round_number: int) -> list[str]:
        """Return the names of every client that may take part in this round, sorted."""
        privacy = self._config.privacy
        if not isinstance(privacy, TreeNoise):
            return population(self._store)
        return eligible_clients(
            self._store,
            round_number,
            min_separation=privacy.min_separation,
            max_participation=privacy.max_participation,
        )

    def shortage(self, round_number: int) -> str | None:
        """Say why this round cannot open with the enrolled devices; None if it can."""
        eligible, enrolled = self.population(round_number), population(self._store)
        return shortage_of(self._config, eligible=len(eligible), enrolled=len(enrolled))

    def _epsilons_after(self, round_number: int, attempt: int) -> Epsilons | None:
        config, budgets = self._config, budgets_of(self._config.privacy)
        held = self.spent()
        if not budgets:
            return None
        paid = None
        if self.entries.is_paid(round_number, attempt):
            paid = attempt_event(config.rounds, config.privacy)
        events = events_of(round_number, config.rounds, config.privacy)
        coming = [event for event in events if event != paid]
        # In which order the two come makes no difference to what both spend.
        evaluations = coming_evaluations(
            config.evaluation, config.rounds, config.privacy, range(round_number, round_number + 1)
        )
        spent: list[PrivacyEvent] = [*held, *evaluations]
        try:
            readers, *others = [_fitting(spent, coming, budget) for budget in budgets]
        except BudgetExceededError as error:
            if not evaluations:
                raise
            raise BudgetExceededError(
                f"with its evaluation by devices, {error}; or ask devices less often",
                rounds_left=error.rounds_left,
                epsilon=error.epsilon,
            ) from None
        return self._against_each(readers, others)

    def _epsilons_of(self, spent: Sequence[PrivacyEvent]) -> Epsilons | None:
        """Return ε of these events alone; None without any, or where nothing is promised."""
        budgets = budgets_of(self._config.privacy)
        if not budgets or not spent:
            return None
        readers, *others = [epsilon_of(spent, each.delta, each.onlooker) for each in budgets]
        return self._against_each(readers, others)

    def _against_each(self, readers: float, others: Sequence[float]) -> Epsilons:
        # What devices noise themselves is noised for the coordinator too.
        is_local = isinstance(self._config.privacy, LocalNoise)
        coordinator = others[0] if others else readers if is_local else math.inf
        delta = budgets_of(self._config.privacy)[0].delta
        return Epsilons(readers=readers, coordinator=coordinator, delta=delta)


def _fitting(
    spent: Sequence[PrivacyEvent], coming: Sequence[PrivacyEvent], budget: PrivacyBudget
) -> float:
    """Return ε against a budget's onlooker after what is coming, if that fits."""
    seen = [event for event in coming if not is_hidden(event, budget.onlooker)]
    if not seen:
        return epsilon_of(spent, budget.delta, budget.onlooker)
    # One event at most: a round shows a release to readers and an attempt to the coordinator.
    return check_budget(spent, seen[0], budget)


def hides_figures(privacy: PrivacySettings) -> bool:
    """Return whether figures of a round's updates (clipped, refused, set aside) stay secret.

    The coordinator sees updates before any noise, and counts of them would be released without any.
    Under ``local`` it sees noised updates alone, and their noise covers all that follows. Under
    ``masked`` it sees masked vectors: it counts them, and that a device sent one follows from no
    text (`models.plan.onlookers`).
    """
    return isinstance(privacy, CentralNoise | TreeNoise)
