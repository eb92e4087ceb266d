"""The jobs of the workers and their answers: names and numbers, as they travel in a pipe."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from edge_client.descent.optimisers import OptimiserState
from edge_client.personalisation.state import PersonalState, StateLayout
from edge_client.training.local_result import LocalResult
from models.plan.plan import Plan
from models.tasks.keystrokes import KeystrokeCounts, Sentences
from models.tasks.metrics import Counts
from models.text.vocabulary import Vocabulary
from simulation.population.examples import Examples, SharedExamples
from simulation.workers.fine_tuning import OwnScore, TypedText
from simulation.workers.shared_buffers import SharedTensors

Work = Literal["train", "score", "type", "fine-tune", "evaluate"]


class Job(NamedTuple):
    """A job: train one client, measure one client's own model, or evaluate users.

    Attributes:
        position: Place among the jobs of this call.
        work: ``train`` one client, ``score`` one client's own model or let it ``type``,
            ``fine-tune`` the released model for one client, or ``evaluate`` it on users.
        names: The client to train or to let type; the client to score and the name of its examples;
            or the users to evaluate.
        round_number: Round, from 1, to train, or round of the model to be fine-tuned.
        buffer: Buffer of the client's generated tensors and its update; set on sending.
        clipping_norm: This round's, where it changes from round to round.
        state: File with the client's personal state; None before its first round.
        next_state: File that training writes it to; None where the method keeps none.
        optimiser: The same for the client's optimiser, as is ``next_optimiser``.
        typed: The client's text in words, to count keys; None counts none.
        epochs: Epochs of fine-tuning after which to score, rising.
    """

    position: int
    work: Work
    names: tuple[str, ...]
    round_number: int = 0
    buffer: int = 0
    clipping_norm: float | None = None
    state: Path | None = None
    next_state: Path | None = None
    optimiser: Path | None = None
    next_optimiser: Path | None = None
    typed: TypedText | None = None
    epochs: tuple[int, ...] = ()


class Answer(NamedTuple):
    """The answer to a job.

    Attributes:
        example_count: Target tokens of one pass; for training.
        mean_loss: Mean training loss in nats.
        update_norm: L2 norm before clipping and noise.
        upload_bytes: Size of the payload, unsealed.
        counts: For scoring and evaluation, as ``keys`` for typing and ``tuned`` for fine-tuning.
        diverged: Whether training ended in NaN or infinity.
        failure: Why the job could not be done, or None.
    """

    position: int
    buffer: int = 0
    example_count: int = 0
    mean_loss: float = 0.0
    update_norm: float = 0.0
    upload_bytes: int = 0
    counts: Counts = Counts()
    keys: KeystrokeCounts = KeystrokeCounts()
    tuned: tuple[OwnScore, ...] = ()
    diverged: bool = False
    failure: str | None = None


class Trained(NamedTuple):
    """One client's update, and the figures of its training.

    Attributes:
        update: Flat float32 in the layout of ``models.plan.plan.upload_schema``; valid until the
            next result is asked for. None if training diverged. In mode ``masked`` the vector
            before its mask, int32 seen as float32, in the layout of ``models.masked.layout``.
        example_count: Target tokens trained on.
        mean_loss: Mean training loss in nats per token.
        update_norm: L2 norm before clipping and noise.
        upload_bytes: Size of the payload, unsealed.
    """

    slot: int
    client_name: str
    update: Tensor | None
    example_count: int
    mean_loss: float
    update_norm: float
    upload_bytes: int


class ClientTrainer(Protocol):
    """A trainer of client after client, as ``edge_client.training.local_round.LocalTrainer``."""

    @property
    def layout(self) -> StateLayout:
        """Return what a client's personal state holds."""
        ...

    def train(
        self,
        parameters: Tensor,
        examples: Examples,
        *,
        round_number: int,
        client_name: str,
        optimiser_state: OptimiserState | None = None,
        personal: PersonalState | None = None,
        into: Tensor | None = None,
        clipping_norm: float | None = None,
    ) -> LocalResult:
        """Return the client's result, with the update in ``into`` where nothing changed it."""
        ...

    def evaluate(
        self,
        parameters: Tensor,
        examples: Examples,
        *,
        client_name: str,
        training_examples: Examples | None = None,
        personal: PersonalState | None = None,
    ) -> Counts:
        """Return what the client's own model makes of the examples."""
        ...

    def type_text(
        self,
        parameters: Tensor,
        sentences: Sentences,
        vocabulary: Vocabulary,
        *,
        client_name: str,
        training_examples: Examples | None = None,
        personal: PersonalState | None = None,
    ) -> KeystrokeCounts:
        """Return the keys that the client's own model would have saved it."""
        ...


TrainerFactory = Callable[[Plan], ClientTrainer]


class Setting(NamedTuple):
    """The settings that a worker process needs once; ``trainer`` makes its ``ClientTrainer``."""

    plan: bytes
    tensors: SharedTensors
    examples: SharedExamples
    trainer: TrainerFactory
    device: str
