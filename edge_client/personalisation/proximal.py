"""Draw parameters towards an anchor while they are trained, and train so: FedProx.

References:
    [FedProx] Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020,
        arXiv:1812.06127, Eq. 2.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from edge_client.personalisation.method import ClientRound, ClientScoring, Learnt
from edge_client.personalisation.plain import PlainHalf
from models.settings.personalisation import FedProxSettings
from models.tasks.metrics import Counts
from models.vector.schema import Schema, TensorSpec


def pull_towards(
    network: nn.Module, schema: Schema, anchor: Tensor, strength: float
) -> Callable[[], None]:
    """Return what adds the gradient of strength/2·|θ - anchor|² to that of each parameter.

    The anchor, flat float32 on the CPU, is read anew at each call, so it may move; strength > 0.
    """
    device = next(network.parameters()).device
    flat = anchor.to(device)
    pairs = [
        (parameter, flat[schema.slices[name]].view(parameter.shape))
        for name, parameter in network.named_parameters()
        if name in schema.slices
    ]

    @torch.no_grad()
    def pull() -> None:
        if flat is not anchor:
            flat.copy_(anchor)
        for parameter, target in pairs:
            if parameter.grad is not None:
                parameter.grad.add_(parameter - target, alpha=strength)

    return pull


class FedProxHalf:
    """Training that stays near the received model ([FedProx]); prediction as the task does it."""

    def __init__(self, settings: FedProxSettings) -> None:
        self._settings = settings
        self._plain = PlainHalf()

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return nothing."""
        return ()

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return nothing."""
        return {}

    def train(self, client: ClientRound) -> Learnt:
        """Run every local epoch with the proximal term."""
        pull = pull_towards(
            client.descent.network,
            client.schema,
            client.received,
            self._settings.proximal_strength,
        )
        return Learnt(client.descent.run(client.optimiser, before_step=pull), {})

    def evaluate(self, client: ClientScoring) -> Counts:
        """Return what the task counts."""
        return self._plain.evaluate(client)
