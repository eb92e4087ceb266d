"""The embedded voices: English spoken on the spot by espeak-ng, in this process.

Needs the extra ``speech-demo``. The package `espeakng_loader` brings espeak-ng's library and data
under GPL-3, which are loaded only when a sentence is to be spoken. Each voice is a speaker, and
reads sentences of its own.

References:
    https://github.com/espeak-ng/espeak-ng: ``speak_lib.h``, version 1.52.
"""

import _ctypes
import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from edge_client.datasets.sound_file import Sound
from edge_client.datasets.speech.plain_sentences import plain_sentences
from edge_client.datasets.speech_set import Recording
from edge_client.datasets.text_set import DatasetError

VOICES = (
    *("en-us", "en-gb-scotland+m3", "en-us+f3", "en-gb-x-rp+f2"),
    *("en-029+m5", "en-us+m7", "en-gb-x-gbclan+f4", "en-us-nyc+m1"),
)
"""Accents of English with men's and women's voices, as different as espeak-ng has them."""

SENTENCES_PER_VOICE = 100

START_VOICES = (
    *("en+m5", "en-us+m2", "en-us+f1", "en-gb-x-rp+m4", "en-gb-scotland+f1", "en-029+f5"),
    *("en-us+m6", "en-gb-x-gbcwmd+m8", "en-us-nyc+f2", "en+f4", "en-us+m1", "en-gb-x-gbclan+m3"),
)
"""Others than `VOICES`, for a start that has met none of those."""

ONE_VOICE = "en-us"
SENTENCES_OF_ONE_VOICE = 400
"""About twenty minutes, as one reader's recordings that several devices hold."""

_SEED = 5
_SYNCHRONOUS = 2
_DONT_EXIT = 0x8000
_UTF8 = 1
_FULL_SCALE = 2**15
_ONE_AT_A_TIME = threading.Lock()

_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


@dataclass(frozen=True)
class SpokenByEspeak:
    """A sentence spoken when it is read by a voice such as ``en-us+f3``; always the same bits."""

    voice: str
    words: str

    @property
    def label(self) -> str:
        """Return the voice."""
        return f"espeak-ng's {self.voice}"

    def stated_s(self) -> float | None:
        """Return None: only speaking tells.

        Raises:
            DatasetError: If the extra is missing.
        """
        _library_path()
        return None

    def read(self) -> Sound:
        """Return the sentence as espeak-ng speaks it, 22,050 Hz, one channel.

        Raises:
            DatasetError: If the extra is missing, or the voice is unknown.
        """
        library_path, data_path = _library_path()
        with _ONE_AT_A_TIME:
            samples, sample_rate_hz = _speak(library_path, data_path, self.voice, self.words)
        return Sound(samples[:, np.newaxis], sample_rate_hz)


def load(path: Path | None) -> list[Recording]:
    """List the embedded recordings; ``path`` is ignored.

    Raises:
        DatasetError: If the extra is missing.
    """
    del path
    return espeak_recordings(VOICES, SENTENCES_PER_VOICE)


def load_one(path: Path | None) -> list[Recording]:
    """List the embedded recordings of a single voice; ``path`` is ignored.

    Raises:
        DatasetError: If the extra is missing.
    """
    del path
    return espeak_recordings((ONE_VOICE,), SENTENCES_OF_ONE_VOICE)


def start_recordings(sentences_per_voice: int, written: Sequence[str] = ()) -> list[Recording]:
    """List what `START_VOICES` say: plain sentences, and every second one of ``written`` instead.

    None of the plain ones is said by `VOICES` (`load`) or `ONE_VOICE` (`load_one`).

    Raises:
        DatasetError: If the extra is missing.
        ValueError: If there are more than 10,000 sentences in all.
    """
    _library_path()
    said = len(VOICES) * SENTENCES_PER_VOICE
    count = len(START_VOICES) * sentences_per_voice
    generator = torch.Generator().manual_seed(_SEED)
    plain = plain_sentences(said + count, generator=generator)[said:]
    others = iter(written)
    return [
        Recording(f"{voice}/{number:04}", voice, words, SpokenByEspeak(voice, words))
        for place, voice in enumerate(START_VOICES)
        for number in range(sentences_per_voice)
        for first in [plain[place * sentences_per_voice + number]]
        for words in [next(others, first) if number % 2 else first]
    ]


def espeak_recordings(voices: tuple[str, ...], sentences_per_voice: int) -> list[Recording]:
    """List sentences dealt to voices, no sentence twice; nothing is spoken yet.

    Raises:
        DatasetError: If the extra is missing.
        ValueError: If there are more than 10,000 sentences in all.
    """
    _library_path()
    generator = torch.Generator().manual_seed(_SEED)
    sentences = iter(plain_sentences(len(voices) * sentences_per_voice, generator=generator))
    return [
        Recording(f"{voice}/{number:04}", voice, words, SpokenByEspeak(voice, words))
        for voice in voices
        for number, words in zip(range(sentences_per_voice), sentences, strict=False)
    ]


def _library_path() -> tuple[str, str]:
    try:
        import espeakng_loader
    except ModuleNotFoundError:
        raise DatasetError(
            "espeak-ng is missing; install sotto[speech-demo], or give recordings with --data"
        ) from None

    return espeakng_loader.get_library_path(), espeakng_loader.get_data_path()


def _speak(
    library_path: str, data_path: str, voice: str, words: str
) -> tuple[NDArray[np.float32], int]:
    """Return samples, shape ``(samples,)``, and their rate."""
    # The library keeps the phase of its pitch flutter from one sentence to the next; loading it
    # afresh, 30 ms, is what makes a sentence the same bits wherever and whenever it is spoken.
    library = ctypes.CDLL(library_path)
    try:
        sample_rate_hz = library.espeak_Initialize(
            _SYNCHRONOUS, 0, os.fsencode(data_path), _DONT_EXIT
        )
        if sample_rate_hz <= 0:
            raise DatasetError(f"espeak-ng cannot start with its data in {data_path}")
        try:
            return _synthesise(library, voice, words), sample_rate_hz
        finally:
            library.espeak_Terminate()
    finally:
        _unload(library)


def _synthesise(library: ctypes.CDLL, voice: str, words: str) -> NDArray[np.float32]:
    pieces: list[NDArray[np.int16]] = []

    # A callback of C: its arguments are samples, their number, and events that say nothing here.
    def take(samples: "ctypes._Pointer[ctypes.c_short]", count: int, events: int | None) -> int:
        del events
        if samples and count > 0:
            pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    callback = _Callback(take)
    library.espeak_SetSynthCallback(callback)
    if library.espeak_SetVoiceByName(voice.encode()):
        raise DatasetError(f"espeak-ng has no voice {voice!r}; see VOICES for some that it has")
    library.espeak_ng_SetRandSeed(ctypes.c_long(_SEED))
    text = words.encode() + b"\0"
    if library.espeak_Synth(text, ctypes.c_size_t(len(text)), 0, 0, 0, _UTF8, None, None):
        raise DatasetError(f"espeak-ng could not speak with {voice}")
    if not pieces:
        raise DatasetError(f"espeak-ng said nothing with {voice}")
    return np.concatenate(pieces).astype(np.float32) / np.float32(_FULL_SCALE)


def _unload(library: ctypes.CDLL) -> None:
    # ctypes offers no public way.
    if sys.platform == "win32":
        _ctypes.FreeLibrary(library._handle)
    else:
        _ctypes.dlclose(library._handle)
