"""Let an exported voice speak: onnxruntime and numpy, no torch.

A text is said sentence by sentence, and a sentence's sound is given as soon as it is there.

References:
    ``models.speech_synthesis``, which speaks with torch.
    [Tacotron2] Shen et al., ICASSP 2018, arXiv:1712.05884: dropout of the pre-net stays on, so
        that a voice does not lean on its own frames more than it learnt to.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from export.graph_face import PERSONAL
from export.griffin_lim import sound_of_mel
from export.runtime import GraphError, PersonalInputs
from export.speech_face import VOCODER_FILE
from export.speech_runtime import VocoderRunner, VoiceGraphs
from export.speech_sentences import sentences
from models.speech_alphabet import encode_speech
from models.transformer_tts_settings import TransformerTtsSettings

if TYPE_CHECKING:
    from export.speech_bundle import SpeechBundle

SLOWEST, FASTEST = 0.25, 4.0
"""How fast a voice may be asked to speak; 1 is as it learnt to."""

PAUSE_S = 0.15
"""Silence between two sentences at speed 1, in seconds; a voice learnt hardly any around them."""

_SPEAKER = PERSONAL + "speaker.vector"

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Utterance:
    """Hold one sentence that was said.

    Attributes:
        text: What was read: characters of the voice's alphabet.
        sound: Float32, shape ``(samples,)``, with the pause that follows it.
        log_mels: What the sound is of, natural logarithms, shape ``(frames, mel)``.
        has_ended: Whether the voice stopped by itself; False if it was cut off.
    """

    text: str
    sound: Array
    log_mels: Array
    has_ended: bool


class Voice:
    """Hold one voice; safe to share between threads, as each call carries its own state.

    Attributes:
        settings: Its alphabet, its audio and its limits.
        sample_rate_hz: Samples a second of its sound.
    """

    def __init__(
        self,
        graphs: VoiceGraphs,
        settings: TransformerTtsSettings,
        *,
        vocoder: VocoderRunner | None = None,
    ) -> None:
        """Take loaded graphs.

        Args:
            graphs: The voice's.
            settings: What they were built from.
            vocoder: Makes the sound; None leaves it to Griffin-Lim.
        """
        self._graphs = graphs
        self._vocoder = vocoder
        self.settings = settings
        self.sample_rate_hz = settings.mel.sample_rate_hz

    @property
    def personal_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each tensor that is a person's own, by input name."""
        return self._graphs.personal_shapes

    def for_person(self, personal: PersonalInputs) -> "Voice":
        """Return this voice with one person's tensors; the sessions are shared.

        Raises:
            GraphError: If a tensor is missing, foreign, or of another shape or dtype.
        """
        own = copy.copy(self)
        own._graphs = self._graphs.for_person(personal)
        return own

    def for_nobody(self) -> "Voice":
        """Return the voice of nobody in particular: the one that everybody's began with.

        Raises:
            GraphError: If more is personal than who speaks; nobody has that.
        """
        if not self.personal_shapes:
            return self
        if set(self.personal_shapes) != {_SPEAKER}:
            raise GraphError(
                "more of this voice is each person's own than who speaks, so there is none of "
                f"nobody: give a person's tensors, {sorted(self.personal_shapes)[:3]} and so on"
            )
        vector = np.zeros(self.personal_shapes[_SPEAKER], dtype=np.float32)
        return self.for_person({_SPEAKER: vector})

    def speak(
        self,
        text: str,
        *,
        speed: float = 1.0,
        seed: int | None = None,
        longest_s: float | None = None,
    ) -> Iterator[Utterance]:
        """Say a text, sentence by sentence; what is wrong with it is said before the first one.

        Args:
            text: Written English.
            speed: How much faster than the voice learnt to speak, in [0.25, 4]; the pitch stays.
            seed: Draws the dropout and the first phases of Griffin-Lim: equal seeds give equal
                sound. None takes one of the system's.
            longest_s: Seconds, at speed 1, after which a sentence that does not end is cut off;
                None for the most that the voice can take.

        Raises:
            SpeechTextError: If the text cannot be said, is empty or too long.
            ValueError: If the speed is out of its range, or there would be no sound.
            GraphError: If onnxruntime fails, or the voice needs a person's tensors and has none.
        """
        if not SLOWEST <= speed <= FASTEST:
            raise ValueError(f"speed must be in [{SLOWEST:g}, {FASTEST:g}], got {speed}")
        most = self._most_steps(longest_s)
        said = sentences(text, self.settings.text, longest=self.settings.longest_text)
        draws = np.random.default_rng(seed)
        return (
            self._utterance(one, speed, most, draws, is_last=place == len(said))
            for place, one in enumerate(said, start=1)
        )

    def _most_steps(self, longest_s: float | None) -> int:
        settings = self.settings
        if longest_s is None:
            return settings.longest_steps
        if not 0 < longest_s < math.inf:
            raise ValueError(f"longest_s must be > 0 and finite, got {longest_s}")
        frames = math.ceil(longest_s * self.sample_rate_hz / settings.mel.hop_size)
        return min(settings.longest_steps, max(1, settings.steps_of(frames)))

    def _utterance(
        self, said: str, speed: float, most: int, draws: np.random.Generator, *, is_last: bool
    ) -> Utterance:
        frames, has_ended = self._frames(said, most, draws)
        log_mels = at_speed(self._graphs.finish(frames)[0], speed)
        sound = self._sound(log_mels, draws)
        if not is_last:
            pause = np.zeros(round(PAUSE_S / speed * self.sample_rate_hz), dtype=np.float32)
            sound = np.concatenate([sound, pause])
        return Utterance(said, sound, log_mels, has_ended)

    def _frames(self, said: str, most: int, draws: np.random.Generator) -> tuple[Array, bool]:
        """Return normalised frames, shape ``(1, frames, mel)``, and whether the voice stopped."""
        graphs = self._graphs
        memory = graphs.read(np.array([encode_speech(said, self.settings.text)]))
        past, frame = graphs.fresh_past(), np.zeros((1, graphs.mel_count), dtype=np.float32)
        made = []
        for _ in range(most):
            step = graphs.step(memory, past, frame, self._kept(draws))
            past, frame = step.past, step.frames[:, -1]
            made.append(step.frames)
            if step.stop[0] > 0:
                return np.concatenate(made, axis=1), True
        return np.concatenate(made, axis=1), False

    def _kept(self, draws: np.random.Generator) -> Array:
        """Return what the two dropouts of the mel pre-net multiply with."""
        dropped = self.settings.prenet_dropout
        is_kept = draws.random((2, 1, self._graphs.prenet_size), dtype=np.float32) >= dropped
        kept: Array = is_kept.astype(np.float32) / np.float32(1 - dropped)
        return kept

    def _sound(self, log_mels: Array, draws: np.random.Generator) -> Array:
        if len(log_mels) < 2:  # A transform has no sound before its second frame.
            log_mels = np.repeat(log_mels, 2, axis=0)
        if self._vocoder is not None:
            sound: Array = self._vocoder.sound(log_mels[np.newaxis])[0]
            return sound
        return sound_of_mel(log_mels, self.settings.mel, draws=draws).astype(np.float32)


def open_voice(bundle: "SpeechBundle", *, thread_count: int = 1) -> Voice:
    """Return the voice of a bundle.

    Args:
        bundle: As ``load_speech_bundle`` gives it.
        thread_count: Threads inside one call.

    Raises:
        GraphError: If onnxruntime is missing, or the graphs cannot be loaded.
    """
    vocoder = None
    if VOCODER_FILE in bundle.graphs:
        vocoder = VocoderRunner(bundle.graphs[VOCODER_FILE], thread_count=thread_count)
    graphs = VoiceGraphs(bundle.graphs, thread_count=thread_count)
    return Voice(graphs, bundle.manifest.model, vocoder=vocoder)


def at_speed(log_mels: Array, speed: float) -> Array:
    """Return a spectrogram that takes 1 / speed of the time, at the same pitch.

    Args:
        log_mels: Shape ``(frames, mel)``.
        speed: Above 0.

    Returns:
        Shape ``(frames / speed, mel)``, rounded: between two frames is a mixture of both.
    """
    if speed == 1:
        return log_mels
    last = len(log_mels) - 1
    places = np.minimum(np.arange(max(1, round(len(log_mels) / speed))) * speed, last)
    before = np.floor(places).astype(np.int64)
    share = (places - before)[:, np.newaxis].astype(np.float32)
    after = np.minimum(before + 1, last)
    mixed: Array = log_mels[before] * (1 - share) + log_mels[after] * share
    return mixed
