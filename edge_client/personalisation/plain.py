"""Train and predict as the task does: for a method that only chooses roles."""

from collections.abc import Mapping

from torch import Tensor

from edge_client.personalisation.method import ClientRound, ClientScoring, Learnt
from models.tasks.metrics import Counts
from models.vector.schema import Schema, TensorSpec


class PlainHalf:
    """Nothing beyond roles: ``global``, ``local``, ``fedper``, ``fedbn``, ``vanilla``, ..."""

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return nothing."""
        return ()

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return nothing."""
        return {}

    def train(self, client: ClientRound) -> Learnt:
        """Run every local epoch."""
        return Learnt(client.descent.run(client.optimiser), {})

    def evaluate(self, client: ClientScoring) -> Counts:
        """Return what the task counts."""
        return client.task.evaluate(client.network, [client.examples], batch_size=client.batch_size)
