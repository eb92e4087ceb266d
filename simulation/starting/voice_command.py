"""Learn a start of voices, measure what it held out, and pack it."""

from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from edge_client.descent.compute import resolve_device
from models.compression.packed_model import PackedDescription, pack, packed_digest, rounded
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, voice_network
from models.settings.model import schema_of
from models.settings.voice import TransformerTtsSettings
from models.tasks.metrics import Counts
from models.tasks.speech import Speech
from privacy.foundation.atomic_files import READABLE, write_atomically
from simulation.config.run_files import take_up
from simulation.config.simulation import config_from, read_tables
from simulation.figures.progress import tell
from simulation.starting.steps_bar import StepsBar
from simulation.starting.texts import NamedRecordings, NamedText
from simulation.starting.voice_clips import VoiceClips, read_voices
from simulation.starting.voice_training import (
    LearntVoices,
    VoiceRecipe,
    learn_voices,
    over_passes,
)

_RECIPE_FILE = "start.json"
_CHECKPOINT_FILE = "checkpoint.pt"
_LANGUAGE = "en"


class VoiceRequest(NamedTuple):
    """What is asked for; see ``simulation.starting.voice_cli``."""

    preset: str
    sentences_per_voice: int
    texts: tuple[NamedText, ...]
    recordings: tuple[NamedRecordings, ...]
    epochs: int
    batch_size: int
    learning_rate: float
    device: str
    seed: int
    out: Path
    pack: Path


class VoiceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A start of voices that is ready.

    Attributes:
        packed: Its packed file, for ``start_from``.
        packed_bytes: That file's size.
        figures: Of held-out clips of its voices: ``mel_l1`` with the weights as they were learnt
            and each voice's own vector, ``packed_mel_l1`` with eight bits a weight, and
            ``middle_mel_l1`` with a vector of zero, where every client begins.
    """

    packed: str
    packed_bytes: int
    figures: dict[str, float]

    def in_words(self) -> str:
        """Return lines for people."""
        figures = [f"{name} {value:.3f}" for name, value in self.figures.items()]
        size = f"packed in {self.packed_bytes} bytes: {self.packed}"
        return "\n".join([*figures, size, f'start_from = "{self.packed}"'])


def learn_voice_start(request: VoiceRequest) -> VoiceOutcome:
    """Learn a start of voices, or go on with one; measure and pack it.

    Raises:
        StoppedStartError: If the folder holds a start that cannot be gone on with.
        ValueError: If the folder holds another start, the preset has no voice with a vector, or a
            text, recordings or the device cannot be used.
        OSError: If a file cannot be read or written.
    """
    resolve_device(request.device)
    recipe, clips = _recipe(request)
    take_up(
        request.out / _RECIPE_FILE,
        msgspec.json.encode(recipe, order="deterministic"),
        otherwise="a start of other settings, voices or clips",
    )
    seconds = len(clips.examples.frames) * recipe.model.mel.hop_size
    hours = seconds / recipe.model.mel.sample_rate_hz / 3600
    tell([f"{len(clips.voices)} voices, {len(clips.examples)} clips, {hours:.1f} h of speech"])
    with StepsBar(recipe.epochs, passes=True) as bar:
        learnt = learn_voices(
            recipe, clips, request.out / _CHECKPOINT_FILE, bar.stepped, device=request.device
        )
    return _packed(request.pack, recipe, clips, learnt)


def _recipe(request: VoiceRequest) -> tuple[VoiceRecipe, VoiceClips]:
    config = config_from(read_tables(request.preset), request.preset)
    model = config.model
    if not isinstance(model, TransformerTtsSettings) or not model.speaker_size:
        raise ValueError(
            f"a start of voices must be of a preset whose model has a speaker_size above 0, such "
            f"as speech-espeak, got {request.preset!r}"
        )
    clips = read_voices(
        model,
        sentences_per_voice=request.sentences_per_voice,
        texts=request.texts,
        recordings=request.recordings,
    )
    training = over_passes(
        config.training,
        request.epochs,
        batch_size=request.batch_size,
        learning_rate=request.learning_rate,
    )
    recipe = VoiceRecipe(
        model=model,
        training=training,
        epochs=request.epochs,
        seed=request.seed,
        voices=clips.voices,
        clips_sha256=clips.sha256,
    )
    return recipe, clips


def _packed(
    path: Path, recipe: VoiceRecipe, clips: VoiceClips, learnt: LearntVoices
) -> VoiceOutcome:
    schema = schema_of(recipe.model)
    weights = rounded(schema, learnt.parameters.numpy())
    as_packed = LearntVoices(torch.from_numpy(weights), learnt.vectors)
    middle = LearntVoices(as_packed.parameters, torch.zeros_like(learnt.vectors))
    figures = {
        "mel_l1": _mel_l1(recipe.model, learnt, clips),
        "packed_mel_l1": _mel_l1(recipe.model, as_packed, clips),
        "middle_mel_l1": _mel_l1(recipe.model, middle, clips),
    }
    description = PackedDescription(
        model=recipe.model,
        language=_LANGUAGE,
        voices=recipe.voices,
        epochs=recipe.epochs,
        seed=recipe.seed,
        figures=figures,
        parameters_sha256=packed_digest(weights),
    )
    content = pack(description, learnt.parameters.numpy())
    write_atomically(path, content, mode=READABLE)
    return VoiceOutcome(packed=str(path), packed_bytes=len(content), figures=figures)


def _mel_l1(model: TransformerTtsSettings, learnt: LearntVoices, clips: VoiceClips) -> float:
    """Return the mean L1 of held-out log-mels, each clip in its voice, fed the true frames."""
    network = voice_network(build_network(model))
    load_parameters(network, schema_of(model), learnt.parameters)
    counts = Counts()
    for vector, own in zip(learnt.vectors, clips.held_out, strict=True):
        if network.speaker is not None:
            network.speaker.vector.data.copy_(vector)
        counts += Speech().evaluate(network, [own])
    return counts.log_loss_sum / counts.token_count
