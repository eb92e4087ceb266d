"""Train who takes part in a round, each from the release that it started from.

Where rounds are buffered a client may have started some rounds ago; as many releases are kept as
may be stale.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby

from torch import Tensor

from models.plan.plan import Plan, download_schema
from models.vector.schema import SENT
from server.config.buffered import BufferedSettings
from server.machine.answers import Abort, Close
from simulation.rounds.attacks import Attackers, Cohort
from simulation.workers.pool import Trained, WorkerPool


class CohortTraining:
    """Know how clients train: the workers, the attackers and the releases in use."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        buffered: BufferedSettings | None,
        attackers: Attackers | None,
        server_step_size: float,
        bases: Mapping[int, Tensor],
    ) -> None:
        """Start with the releases that clients at work have.

        Args:
            pool: Trains clients.
            buffered: How old an update may be; None where rounds wait for their cohort.
            attackers: Who sends what it likes; None where everybody is honest.
            server_step_size: Of the aggregation, which attackers know.
            bases: Parameters of earlier releases, flat float32, by round.
        """
        self._pool = pool
        self._buffered = buffered
        self._attackers = attackers
        self._server_step_size = server_step_size
        self._bases = dict(bases)

    def keep(self, round_number: int, parameters: Tensor) -> None:
        """Remember a release for those who are still to start from it, and forget the oldest."""
        if self._buffered is None:
            return
        oldest = round_number - self._buffered.max_staleness
        self._bases = {known: base for known, base in self._bases.items() if known >= oldest}
        self._bases[round_number] = parameters

    def worth(self, order: Close) -> dict[str, float]:
        """Return what each client's update counts beside a fresh one."""
        buffered = self._buffered
        return {
            receipt.client: 1.0 if buffered is None else buffered.worth(receipt.staleness)
            for receipt in order.receipts
        }

    def results(
        self,
        order: Close,
        plan: Plan,
        parameters: Tensor,
        *,
        clipping_norm: float | None,
        generate: Callable[[str], Tensor | None],
    ) -> Iterator[Trained]:
        """Yield what the cohort sends, in slot order; attackers send what they like.

        Args:
            order: Closes the round.
            plan: Of the round.
            parameters: Of the newest release, flat float32, shape ``(elements,)``.
            clipping_norm: That clients are told, in parameter units; None where nothing is clipped.
            generate: Returns a client's generated tensors; called as it is their turn.
        """
        cohort = [(place, name) for name, place in order.places().items()]
        ages = {receipt.client: receipt.staleness for receipt in order.receipts}

        def train(members: Cohort, *, keeps: bool = True) -> Iterator[Trained]:
            # In slot order, so the oldest come first, and each release is taken up once.
            for age, alike in groupby(members, key=lambda member: ages[member[1]]):
                yield from self._pool.train(
                    self._bases[order.round_number - 1 - age] if age else parameters,
                    list(alike),
                    round_number=order.round_number - age,
                    counts_in=order.round_number,
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
        )

    def let_keep(
        self,
        order: Abort,
        parameters: Tensor,
        *,
        clipping_norm: float | None,
        generate: Callable[[str], Tensor | None],
    ) -> None:
        """Train those whose updates expire with an attempt, for what they keep to themselves.

        A device keeps it from the acknowledgement of its update on, and is told of no abort. Where
        nothing is kept there is nothing to do.

        Args:
            order: Ends an attempt at a round that waits for its cohort.
            parameters: Of the newest release, flat float32, shape ``(elements,)``.
            clipping_norm: As in ``results``.
            generate: As in ``results``.
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
