"""Say whether the next round still fits the privacy budget, and who may take part in it."""

import logging

from models.model_settings import schema_of
from privacy.budget import check_budget
from privacy.calibrated_settings import TreeNoise
from server.clients import eligible_clients, population
from server.config import FederationConfig
from server.guarantee_rules import budget_of, event_of
from server.ledger import ledger_events
from server.outlook import outlook
from server.store import Store
from server.threads import Threads

_LOG = logging.getLogger(__name__)


class RoundGate:
    """Stand before each round of one federation."""

    def __init__(self, config: FederationConfig, store: Store, run: str, threads: Threads) -> None:
        """Serve one federation.

        Args:
            config: Its settings.
            store: Holds its ledger and its devices.
            run: Identifier of the run, 32 hex digits.
            threads: Do the accounting.
        """
        self._config = config
        self._store = store
        self._run = run
        self._threads = threads
        self._admitted: tuple[int, float | None] | None = None

    @property
    def limits_who_comes(self) -> bool:
        """Tell whether the mode says how often one person takes part."""
        return isinstance(self._config.privacy, TreeNoise)

    @property
    def hides_counts(self) -> bool:
        """Tell whether how many took part is a secret of the coins."""
        return self._config.rounds.selection == "sampled"

    async def announce(self, next_round: int) -> None:
        """Log what the run promises and will have spent.

        Raises:
            LedgerError: If the ledger was changed or belongs to another run.
        """
        for line in await self._threads.run(lambda: self._outlook(next_round)):
            _LOG.info("privacy: %s", line)

    async def admit(self, round_number: int) -> float | None:
        """Return ε after this round, or None where nothing is promised.

        Raises:
            BudgetExceededError: If the round would pass the budget.
            LedgerError: If the ledger was changed or belongs to another run.
        """
        if self._admitted is None or self._admitted[0] != round_number:
            epsilon = await self._threads.run(lambda: self._check(round_number))
            self._admitted = (round_number, epsilon)
        return self._admitted[1]

    async def population(self, round_number: int) -> list[str]:
        """Return the names of every device that may take part in this round, sorted."""
        privacy = self._config.privacy
        if not isinstance(privacy, TreeNoise):
            return await self._threads.run(lambda: population(self._store))
        return await self._threads.run(
            lambda: eligible_clients(
                self._store,
                round_number,
                min_separation=privacy.min_separation,
                max_participation=privacy.max_participation,
            )
        )

    def _outlook(self, next_round: int) -> list[str]:
        config = self._config
        return outlook(
            schema_of(config.model),
            config.privacy,
            config.aggregation,
            config.rounds,
            spent=ledger_events(self._store, self._run),
            first_round=next_round,
        )

    def _check(self, round_number: int) -> float | None:
        config, budget = self._config, budget_of(self._config.privacy)
        if budget is None:
            return None
        event = event_of(round_number, config.rounds, config.privacy)
        return check_budget(ledger_events(self._store, self._run), event, budget)
