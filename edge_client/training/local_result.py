"""The start of one client's round, its training's result, and its outcome."""

from dataclasses import dataclass

from torch import Tensor

from edge_client.descent.optimisers import OptimiserState
from edge_client.personalisation.state import PersonalState


@dataclass(frozen=True)
class LocalResult:
    """The outcome of one client's round; ``update_norm`` and ``mean_loss`` are never sent.

    Attributes:
        update: The update as it arrives: trained minus received parameters, clipped, with the
            mode's client half applied, and rounded where the plan compresses it; flat float32 in
            the layout of ``models.plan.plan.upload_schema``. In mode ``masked`` the vector before
            its mask, int32 in the layout of ``models.masked.layout``.
        update_norm: L2 norm before clipping and noise.
        example_count: Target tokens in one pass over the client's examples, whatever
            ``local_epochs`` says; with ``example_privacy`` the same for every client. A sender that
            tells it, or weighs by it, keeps to the plan's ``example_cap``.
        mean_loss: Mean of the local objective over every target of every pass, in nats, measured
            while training. NaN where ``example_privacy`` drew no example.
        optimiser_state: For the client's next round where the plan keeps it, else None.
        personal: The state that the client keeps until its next round; None if there is none.
        payload: The payload that travels; None where that is ``update`` as it is.
        failure: Why nothing could be learnt, where the plan hides that; for the owner alone.
    """

    update: Tensor
    update_norm: float
    example_count: int
    mean_loss: float
    optimiser_state: OptimiserState | None
    personal: PersonalState | None = None
    payload: memoryview | None = None
    failure: Exception | None = None


@dataclass(frozen=True)
class RoundStart:
    """The start of one client's round; see ``LocalTrainer.train``."""

    parameters: Tensor
    round_number: int
    client_name: str
    optimiser_state: OptimiserState | None
    personal: PersonalState | None
    into: Tensor | None
    clipping_norm: float | None

    @property
    def own(self) -> Tensor | None:
        """Return the client's own tensors, flat float32; None before its first round."""
        return None if self.personal is None else self.personal.personal

    @property
    def residual(self) -> Tensor | None:
        """Return what compression lost of the client's last update, if that is fed back."""
        return None if self.personal is None else self.personal.residual


@dataclass(frozen=True)
class RoundLearnt:
    """The result of training, not yet clipped; ``feeds_back`` adds what compression lost."""

    update: Tensor
    example_count: int
    mean_loss: float
    optimiser_state: OptimiserState | None
    kept: PersonalState | None
    feeds_back: bool = True
