"""Teach one network the voices of many people at once, kept on disk after every pass.

One learner has all clips, a batch those of several voices, every one with a vector of its own; the
network is stepped as a device steps it (`edge_client.descent`). At the end the mean of the vectors
becomes part of the network, so that a vector of zero, with which every client begins, is a voice in
the middle of those learnt from. On one thread of one kind of processor, the same clips and seed
give the same bits, in one go or with interruptions; not so on a graphics processor.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch.func import functional_call

from edge_client.descent.compute import prepare_compute
from edge_client.descent.descent import Descent
from edge_client.descent.optimisers import Optimiser
from models.layers.dropout import use_generator
from models.networks.flat_parameters import read_parameters
from models.networks.registry import Network, build_network, voice_network
from models.networks.voice import TransformerTts
from models.plan.plan import TrainingSettings
from models.settings.model import schema_of
from models.settings.voice import TransformerTtsSettings
from models.tasks.speech import Speech
from models.tasks.speech_examples import SpeechBatch
from models.vector.schema import Schema
from models.vector.seeds import client_seed
from simulation.starting.checkpoints import keep, kept
from simulation.starting.voice_clips import VoiceClips

_VECTOR = "speaker.vector"
_SPREAD = 0.3
"""Standard deviation of the vectors before the first step; at zero all voices would be one."""

OnPass = Callable[[int, float], None]
"""Told of every pass over the clips, from 1, and of its mean loss."""


class VoiceRecipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts that fix a start to the bit, so that none is gone on with as another.

    Attributes:
        training: How it is stepped; a round stands for a pass over all clips.
        clips_sha256: Hex digest of all clips.
    """

    model: TransformerTtsSettings
    training: TrainingSettings
    epochs: int
    seed: int
    voices: tuple[str, ...]
    clips_sha256: str


def over_passes(
    training: TrainingSettings, passes: int, *, batch_size: int, learning_rate: float
) -> TrainingSettings:
    """Return a preset's training as a start takes it: steps fall, if they do, until the end."""
    decay = training.decay and msgspec.structs.replace(training.decay, last_round=passes)
    return msgspec.structs.replace(
        training, batch_size=batch_size, learning_rate=learning_rate, decay=decay
    )


class LearntVoices(NamedTuple):
    """A network after its last pass.

    Attributes:
        parameters: Flat float32, shape ``(elements,)``; the speaker's vector is zero.
        vectors: That of each voice, shape ``(voices, speaker size)``.
    """

    parameters: Tensor
    vectors: Tensor


def learn_voices(
    recipe: VoiceRecipe,
    clips: VoiceClips,
    checkpoint: Path,
    on_pass: OnPass,
    *,
    device: str = "cpu",
) -> LearntVoices:
    """Return the network after the last pass, from a checkpoint on if it is there.

    Raises:
        ComputeError: If there is no such device.
        StoppedStartError: If the checkpoint cannot be read.
        UnusableExamplesError: If the clips do not fit the network.
        OSError: If the disk is full.
    """
    training = _Training(recipe, clips, device)
    if checkpoint.exists():
        training.restore(checkpoint)
    training.finish(checkpoint, on_pass)
    return training.centred()


class _Voiced(NamedTuple):
    batch: SpeechBatch
    speakers: Tensor


class _Spoken(nn.Module):
    """The loss of a batch, as a module: so that each clip may have a vector of its own in it."""

    def __init__(self, network: TransformerTts) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: SpeechBatch) -> tuple[Tensor, int, Tensor | None]:
        """Return what the task says."""
        return Speech().loss(self.network, batch, None)


class _ManyVoices:
    """The task's loss over clips of many voices (`LocalObjective`)."""

    def __init__(
        self, clips: VoiceClips, vectors: Tensor, network: TransformerTts, size: int
    ) -> None:
        self._clips = clips
        self._vectors = vectors
        self._spoken = _Spoken(network)
        self._size = size

    def batches(self, network: Network, generator: torch.Generator) -> Iterator[_Voiced]:
        """Yield every clip once, as the task does, with its voice."""
        del network
        for places in Speech.places(self._clips.examples, self._size, generator):
            yield _Voiced(
                SpeechBatch.of(self._clips.examples, places), self._clips.speakers[places]
            )

    def loss(
        self, network: Network, batch: _Voiced, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the loss, the number of frames, and None."""
        del network, state
        # One vector a clip, the same at each of its characters.
        own = self._vectors[batch.speakers.to(self._vectors.device)].unsqueeze(1)
        found: tuple[Tensor, int, Tensor | None] = functional_call(
            self._spoken, {f"network.{_VECTOR}": own}, (batch.batch,)
        )
        return found


class _Training:
    """A network and the vectors of its voices on their way."""

    def __init__(self, recipe: VoiceRecipe, clips: VoiceClips, device: str) -> None:
        self._recipe = recipe
        self._clips = clips
        self._device = prepare_compute(device, threads=1, model=recipe.model)
        self._network = voice_network(build_network(recipe.model))
        first = torch.Generator().manual_seed(recipe.seed)
        self._network.initialise(first)
        self._network.to(self._device)
        Speech().check(clips.examples, self._network)
        drawn = torch.empty(len(clips.voices), recipe.model.speaker_size)
        self._vectors = nn.Parameter(drawn.normal_(0, _SPREAD, generator=first).to(self._device))
        self._schema = _without_vector(schema_of(recipe.model))
        self._optimiser = Optimiser(self._network, self._schema, recipe.training)
        self._of_vectors = torch.optim.Adam([self._vectors])
        self._done = 0

    def finish(self, checkpoint: Path, on_pass: OnPass) -> None:
        while self._done < self._recipe.epochs:
            loss = self._pass(self._done + 1)
            self._done += 1
            self._keep(checkpoint)
            on_pass(self._done, loss)

    def _pass(self, number: int) -> float:
        training = self._recipe.training.at_round(number)
        state = self._optimiser.state() if self._done else {}
        self._optimiser = self._optimiser.fresh(training)
        self._optimiser.load_state(state)
        for group in self._of_vectors.param_groups:
            group["lr"] = training.learning_rate
        use_generator(self._network, self._generator(number, "dropout", self._device))
        descent = Descent(
            self._network,
            Speech(),
            self._clips.examples,
            training,
            generator=self._generator(number, "data"),
            device=self._device,
        )
        objective = _ManyVoices(self._clips, self._vectors, self._network, training.batch_size)
        return descent.run(
            self._optimiser, epochs=1, objective=objective, before_step=self._step_vectors
        )

    def _step_vectors(self) -> None:
        self._of_vectors.step()
        self._of_vectors.zero_grad()

    def centred(self) -> LearntVoices:
        """Return the network whose middle voice has a vector of zero: the same for every voice."""
        network, vectors = self._network.cpu(), self._vectors.detach().cpu()
        middle = vectors.mean(0)
        with torch.no_grad():
            if network.speaker is not None:
                network.text_prenet.projection.bias.add_(network.speaker.projection(middle))
                network.speaker.vector.zero_()
        return LearntVoices(
            read_parameters(network, schema_of(self._recipe.model)), vectors - middle
        )

    def restore(self, checkpoint: Path) -> None:
        with kept(checkpoint) as parts:
            self._network.load_state_dict(parts["network"])
            self._optimiser.load_state(parts["optimiser"])
            self._vectors.data.copy_(parts["vectors"])
            self._of_vectors.load_state_dict(parts["of_vectors"])
            self._done = int(parts["done"])

    def _keep(self, checkpoint: Path) -> None:
        parts = {
            "network": self._network.state_dict(),
            "optimiser": self._optimiser.state(),
            "vectors": self._vectors.data,
            "of_vectors": self._of_vectors.state_dict(),
            "done": self._done,
        }
        keep(checkpoint, parts)

    def _generator(
        self, number: int, purpose: str, device: torch.device | None = None
    ) -> torch.Generator:
        seed = client_seed(self._recipe.seed, number, "start", purpose=purpose)
        return torch.Generator(device or "cpu").manual_seed(seed)


def _without_vector(schema: Schema) -> Schema:
    return Schema(tuple(spec for spec in schema.tensors if spec.name != _VECTOR))
