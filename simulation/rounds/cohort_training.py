"""Training of a round's cohort: what honest clients and attackers send."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from torch import Tensor

from models.masked.layout import MaskedLayout
from models.plan.plan import Plan, download_schema
from models.vector.schema import SENT
from server.machine.answers import Abort, Close
from simulation.rounds.attacks import Attackers, Cohort
from simulation.workers.jobs import Trained
from simulation.workers.pool import WorkerPool


class CohortTraining:
    """The training of a cohort: the workers, the attackers and the releases in use."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        attackers: Attackers | None,
        server_step_size: float,
    ) -> None:
        """Train the clients of one run; attackers know the aggregation's ``server_step_size``."""
        self._pool = pool
        self._attackers = attackers
        self._server_step_size = server_step_size

    def results(
        self,
        order: Close,
        plan: Plan,
        parameters: Tensor,
        *,
        clipping_norm: float | None,
        generate: Callable[[str], Tensor | None],
        layout: MaskedLayout | None = None,
    ) -> Iterator[Trained]:
        """Yield what the cohort sends, in slot order.

        Args:
            parameters: The newest release, flat float32, shape ``(elements,)``.
            clipping_norm: In parameter units; None without clipping.
            generate: Returns a client's generated tensors; called at its turn.
            layout: That of masked vectors, where updates are such.
        """
        cohort = [(place, name) for name, place in order.places().items()]

        def train(members: Cohort, *, keeps: bool = True) -> Iterator[Trained]:
            return self._pool.train(
                parameters,
                members,
                round_number=order.round_number,
                clipping_norm=clipping_norm,
                generate=generate,
                keeps=keeps,
            )

        if self._attackers is None:
            return train(cohort)
        return self._attackers.trained(
            cohort,
            train,
            rehearse=partial(train, keeps=False),
            round_number=order.round_number,
            element_count=download_schema(plan).with_roles(*SENT).element_count,
            server_step_size=self._server_step_size,
            layout=layout,
        )

    def let_keep(
        self,
        order: Abort,
        parameters: Tensor,
        *,
        clipping_norm: float | None,
        generate: Callable[[str], Tensor | None],
    ) -> None:
        """Train clients whose updates expire with an aborted attempt, for the state that they keep.

        A device keeps its state from the acknowledgement of its update on, and hears of no abort.
        Does nothing if the method keeps no state. Arguments are as in ``results``.
        """
        if not self._pool.keeps_states:
            return
        acknowledged = [(receipt.slot, receipt.client) for receipt in order.receipts]
        trained = self._pool.train(
            parameters,
            acknowledged,
            round_number=order.round_number,
            clipping_norm=clipping_norm,
            generate=generate,
        )
        deque(trained, maxlen=0)
