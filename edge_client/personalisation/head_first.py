"""Train the personal head first, then the body: FedRep.

References:
    [FedRep] Collins et al., "Exploiting Shared Representations for Personalized Federated
        Learning", ICML 2021, arXiv:2102.07078, algorithm 1.
"""

from collections.abc import Mapping

from torch import Tensor

from edge_client.personalisation.method import ClientRound, ClientScoring, Learnt
from edge_client.personalisation.plain import PlainHalf
from models.tasks.metrics import Counts
from models.vector.schema import SENT, Role, Schema, TensorSpec


class FedRepHalf:
    """All local epochs but the last train the head alone, the last the body alone ([FedRep])."""

    def __init__(self) -> None:
        self._plain = PlainHalf()

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return nothing: the head is a personal tensor of the model."""
        return ()

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return nothing."""
        return {}

    def train(self, client: ClientRound) -> Learnt:
        """Run the epochs of the head, then that of the body."""
        head = client.schema.with_roles(Role.PERSONAL).slices
        body = client.schema.with_roles(*SENT).slices
        # The plan sees to it that there are at least two.
        head_epochs = client.descent.training.local_epochs - 1
        head_loss = client.descent.run(client.optimiser, epochs=head_epochs, only=head)
        body_loss = client.descent.run(client.optimiser, epochs=1, only=body)
        return Learnt((head_loss * head_epochs + body_loss) / (head_epochs + 1), {})

    def evaluate(self, client: ClientScoring) -> Counts:
        """Return what the task counts."""
        return self._plain.evaluate(client)
