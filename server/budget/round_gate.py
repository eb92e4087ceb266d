"""Decide whether the next round and its evaluation fit the budget, and who may take part."""

from collections.abc import Callable

from privacy.accounting.accountant import epsilon_of
from privacy.accounting.budget import BudgetExceededError, check_budget
from privacy.accounting.events import PrivacyEvent
from privacy.accounting.ledger_chain import NotedHead
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.plan_events import budget_of, event_of
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
    """The gate before each attempt of one run, coordinated or simulated; all of it blocks."""

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
        self._admitted: tuple[tuple[int, int], float | None] | None = None
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
        first_to_pay = next_round + self.entries.is_paid(next_round, attempt)
        return outlook(self._config, spent=spent, first_round=first_to_pay)

    def admit(self, round_number: int, attempt: int = 0) -> float | None:
        """Return ε after this attempt and its round's evaluation; None if nothing is promised.

        Asked before an attempt is opened, and again before its round is closed. An attempt that the
        ledger holds is closed whatever is left of the budget: the release shows nothing more.

        Raises:
            BudgetExceededError: If they would pass the budget.
            LedgerError: If the ledger was changed, lost its end or belongs to another run.
        """
        asked = (round_number, attempt)
        if self._admitted is None or self._admitted[0] != asked:
            self._admitted = (asked, self._epsilon_after(round_number, attempt))
        return self._admitted[1]

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

    def _epsilon_after(self, round_number: int, attempt: int) -> float | None:
        config, budget = self._config, budget_of(self._config.privacy)
        held = self.spent()
        if budget is None:
            return None
        if self.entries.is_paid(round_number, attempt):
            return epsilon_of(held, budget.delta)
        event = event_of(round_number, config.rounds, config.privacy)
        # In which order the two come makes no difference to what both spend.
        evaluations = coming_evaluations(
            config.evaluation, config.rounds, config.privacy, range(round_number, round_number + 1)
        )
        spent = [*held, *evaluations]
        try:
            return check_budget(spent, event, budget)
        except BudgetExceededError as error:
            if not evaluations:
                raise
            raise BudgetExceededError(
                f"with its evaluation by devices, {error}; or ask devices less often",
                rounds_left=error.rounds_left,
                epsilon=error.epsilon,
            ) from None


def hides_figures(privacy: PrivacySettings) -> bool:
    """Return whether figures of a round's updates (clipped, refused, set aside) stay secret.

    The coordinator sees updates before any noise, and counts of them would be released without any.
    Under ``local`` it sees noised updates alone, and their noise covers all that follows.
    """
    return isinstance(privacy, CentralNoise | TreeNoise)
