"""Release what devices counted under a guarantee: pay first, then draw the noise.

So no figure is without its ledger entry; a crash in between has spent budget for nothing.
"""

import time

from privacy.accounting.budget import check_budget
from privacy.noise.limited_counts import LimitedSum
from privacy.noise.plan_events import budget_of, evaluation_event
from privacy.noise.secure_gaussian import NoiseKeys
from server.config.federation import FederationConfig
from server.records.failpoints import UNARMED, Failpoint, Failpoints
from server.records.ledger import ledger_events, note_evaluation, prepare_entry
from server.records.store import Store


class NoisedEvaluations:
    """The noised evaluations of one run, coordinated or simulated; all of it blocks."""

    def __init__(
        self,
        config: FederationConfig,
        store: Store,
        run: str,
        keys: NoiseKeys,
        failpoints: Failpoints = UNARMED,
    ) -> None:
        """Take keys fresh for every draw: a tree's would noise two sums of a round alike."""
        self._config = config
        self._store = store
        self._run = run
        self._keys = keys
        self._failpoints = failpoints

    def release(self, round_number: int, counted: LimitedSum) -> dict[str, float]:
        """Enter an evaluation in the ledger and return its noised figures; call it once for a sum.

        Raises:
            BudgetExceededError: If it would pass the budget; nothing is released.
            LedgerError: If the ledger was changed or belongs to another run.
            ValueError: If the settings promise nothing.
        """
        config = self._config
        event = evaluation_event(config.evaluation, config.rounds, config.privacy)
        budget = budget_of(config.privacy)
        if event is None or budget is None:
            raise ValueError("noised figures need evaluation.noise and a mode with a guarantee")
        check_budget(ledger_events(self._store, self._run), event, budget)
        entry = prepare_entry(
            self._store, event, run=self._run, round_number=round_number, now=time.time()
        )
        with self._store.write() as connection:
            note_evaluation(connection, round_number, entry)
        self._failpoints.reach(Failpoint.EVALUATION_PAID)
        return counted.noised(self._keys.draw(f"evaluation {entry.sequence}"))
