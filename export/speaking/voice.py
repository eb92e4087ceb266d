"""Let an exported voice speak: onnxruntime and numpy, no torch.

With a vocoder a sentence's sound is given while it is made, without one when the sentence is done.

References:
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

from export.faces.speech import MIDDLES, VOCODER_FILE
from export.faces.words import PERSONAL
from export.runtime.word_graph import GraphError, PersonalInputs
from export.speaking.sentences import sentences
from export.speaking.stream import SoundStream, WholeSound
from export.speaking.voice_graphs import Made, VocoderRunner, VoiceGraphs
from models.settings.voice import TransformerTtsSettings
from models.text.speech_alphabet import encode_speech

if TYPE_CHECKING:
    from export.bundles.keyboard_bundle import SpeechBundle

SLOWEST, FASTEST = 0.25, 4.0
"""How fast a voice may be asked to speak; 1 is as it learnt to."""

SLOWEST_START_S, SLOWEST_CHARACTER_S = 2.0, 0.25
"""Seconds of sound that a sentence and each of its characters may take; speech takes a third."""

PAUSE_S = 0.15
"""Silence between two sentences at speed 1, in seconds; a voice learnt hardly any around them."""

_SPEAKER = PERSONAL + "speaker.vector"

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Piece:
    """A stretch of sound, all or a part of a sentence.

    Attributes:
        sound: Float32, shape ``(samples,)``.
        said: The sentence, once it is done; None before its last piece.
    """

    sound: Array
    said: "Said | None"


@dataclass(frozen=True)
class Said:
    """A sentence as it went.

    Attributes:
        text: The text that was read: characters of the voice's alphabet.
        log_mels: The spectrogram of its sound, natural logarithms, shape ``(frames, mel)``.
        has_ended: Whether the voice stopped by itself; False if it was cut off.
    """

    text: str
    log_mels: Array
    has_ended: bool


@dataclass(frozen=True)
class Utterance(Said):
    """A sentence and its sound, float32, shape ``(samples,)``, with the pause that follows."""

    sound: Array


class Voice:
    """One voice; safe to share between threads, as each call carries its own state."""

    def __init__(
        self,
        graphs: VoiceGraphs,
        settings: TransformerTtsSettings,
        *,
        vocoder: VocoderRunner | None = None,
    ) -> None:
        """Take loaded graphs; without a vocoder Griffin-Lim makes the sound."""
        self._graphs = graphs
        self._vocoder = vocoder
        self.settings = settings
        self.sample_rate_hz = settings.mel.sample_rate_hz

    @property
    def personal_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each tensor that is a person's own, by input name."""
        return self._graphs.personal_shapes

    def for_person(self, personal: PersonalInputs) -> "Voice":
        """Return this voice with one person's tensors (``VoiceGraphs.for_person``)."""
        own = copy.copy(self)
        own._graphs = self._graphs.for_person(personal)
        return own

    @property
    def can_be_nobody(self) -> bool:
        """Return whether nothing is personal but the speaker."""
        return set(self.personal_shapes) <= {_SPEAKER}

    def for_nobody(self) -> "Voice":
        """Return the voice of nobody in particular: the one that everybody's began with.

        Raise GraphError if more is personal than the speaker; nobody has that.
        """
        if not self.personal_shapes:
            return self
        if not self.can_be_nobody:
            raise GraphError(
                "more of this voice is each person's own than who speaks, so there is none of "
                "nobody: give a person's tensors (--person FILE), "
                f"{sorted(self.personal_shapes)[:3]} and so on"
            )
        vector = np.zeros(self.personal_shapes[_SPEAKER], dtype=np.float32)
        return self.for_person({_SPEAKER: vector})

    def for_trial(self) -> "Voice":
        """Return this voice with zeros for a person's own tensors: to find out whether it runs."""
        if not self.personal_shapes:
            return self
        shapes = self.personal_shapes.items()
        return self.for_person({name: np.zeros(shape, dtype=np.float32) for name, shape in shapes})

    def speak(
        self,
        text: str,
        *,
        speed: float = 1.0,
        seed: int | None = None,
        longest_s: float | None = None,
    ) -> Iterator[Utterance]:
        """Say a text, a sentence at a time; arguments and errors as for ``stream``."""
        pieces = self.stream(text, speed=speed, seed=seed, longest_s=longest_s)
        return _by_sentence(pieces)

    def stream(
        self,
        text: str,
        *,
        speed: float = 1.0,
        seed: int | None = None,
        longest_s: float | None = None,
    ) -> Iterator[Piece]:
        """Say a text, a stretch at a time; what is wrong with it is raised before the first one.

        Args:
            speed: How much faster than the voice learnt to speak, in [0.25, 4]; the pitch stays.
            seed: Draws the dropout and the first phases of Griffin-Lim: equal seeds give equal
                sound. None takes one of the system's.
            longest_s: Seconds, at speed 1, after which a sentence that does not end is cut off,
                at most what the voice can take; None for as long as slow speech would need.

        Raises:
            SpeechTextError: If the text cannot be said, is empty or too long.
            ValueError: If the speed is out of its range, or there would be no sound.
            GraphError: If onnxruntime fails, or the voice needs a person's tensors and has none.
        """
        if not SLOWEST <= speed <= FASTEST:
            raise ValueError(f"speed must be in [{SLOWEST:g}, {FASTEST:g}], got {speed}")
        if longest_s is not None and not 0 < longest_s < math.inf:
            raise ValueError(f"longest_s must be > 0 and finite, got {longest_s}")
        said = sentences(text, self.settings.text, longest=self.settings.longest_text)
        draws = np.random.default_rng(seed)
        return (
            piece
            for place, one in enumerate(said, start=1)
            for piece in self._pieces(
                one, speed, self._most_steps(one, longest_s), draws, is_last=place == len(said)
            )
        )

    def _most_steps(self, said: str, longest_s: float | None) -> int:
        """Return the steps after which a sentence that does not end is cut off."""
        settings = self.settings
        if longest_s is None:
            longest_s = SLOWEST_START_S + SLOWEST_CHARACTER_S * len(said)
        frames = math.ceil(longest_s * self.sample_rate_hz / settings.mel.hop_size)
        return min(settings.longest_steps, max(1, settings.steps_of(frames)))

    def _pieces(
        self, said: str, speed: float, most: int, draws: np.random.Generator, *, is_last: bool
    ) -> Iterator[Piece]:
        """Yield a sentence's sound, with the pause that follows it."""
        stream: SoundStream | WholeSound
        if self._vocoder is None:
            stream = WholeSound(self.settings, self._graphs.finish, draws, speed=speed)
        else:
            stream = SoundStream(self.settings, self._graphs.finish, self._vocoder, speed=speed)
        has_ended = False
        for step, is_done in self._steps(said, most, draws):
            has_ended = is_done
            sound = stream.add(step.frames)
            if len(sound):
                yield Piece(sound, None)
        pause = 0 if is_last else round(PAUSE_S / speed * self.sample_rate_hz)
        yield Piece(np.pad(stream.end(), (0, pause)), Said(said, stream.log_mels, has_ended))

    def _steps(
        self, said: str, most: int, draws: np.random.Generator
    ) -> Iterator[tuple[Made, bool]]:
        """Yield steps until the voice stops, or has taken the most; and whether each is the last.

        A voice with an aligner stops where the durations of its characters end.
        """
        graphs = self._graphs
        memory = graphs.read(np.array([encode_speech(said, self.settings.text)]))
        spoken = None
        if MIDDLES in memory:
            spoken = self.settings.spoken_steps(memory[MIDDLES].numpy()[0].tolist())
        past, frame = graphs.fresh_past(), np.zeros((1, graphs.mel_count), dtype=np.float32)
        for place in range(most):
            step = graphs.step(memory, past, frame, self._kept(draws))
            is_last = bool(step.stop[0] > 0) if spoken is None else place + 1 == spoken
            yield step, is_last
            if is_last:
                return
            past, frame = step.past, step.frames[:, -1]

    def _kept(self, draws: np.random.Generator) -> Array:
        """Return what the two dropouts of the mel pre-net multiply with."""
        dropped = self.settings.prenet_dropout
        is_kept = draws.random((2, 1, self._graphs.prenet_size), dtype=np.float32) >= dropped
        kept: Array = is_kept.astype(np.float32) / np.float32(1 - dropped)
        return kept


def open_voice(bundle: "SpeechBundle", *, thread_count: int = 1) -> Voice:
    """Return the voice of a bundle; its graphs take ``thread_count`` threads inside one call.

    Raise GraphError if onnxruntime is missing, or the graphs cannot be loaded.
    """
    vocoder = None
    if VOCODER_FILE in bundle.files:
        vocoder = VocoderRunner(bundle.files[VOCODER_FILE], thread_count=thread_count)
    graphs = VoiceGraphs(bundle.files, thread_count=thread_count)
    return Voice(graphs, bundle.manifest.model, vocoder=vocoder)


def _by_sentence(pieces: Iterator[Piece]) -> Iterator[Utterance]:
    """Join the pieces of each sentence."""
    sounds: list[Array] = []
    for piece in pieces:
        sounds.append(piece.sound)
        if piece.said is not None:
            said = piece.said
            yield Utterance(said.text, said.log_mels, said.has_ended, np.concatenate(sounds))
            sounds = []
