"""Clips of espeak-ng's voices whose texts are phonemes, as espeak-ng itself reads the letters.

References:
    https://github.com/espeak-ng/espeak-ng: ``speak_lib.h``, version 1.52, espeak_TextToPhonemes.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence

import espeakng_loader
import msgspec
import torch

from edge_client.datasets.speech.espeak import START_VOICES
from models.settings.voice import TransformerTtsSettings
from models.tasks.speech_examples import SpeechClip, SpeechExamples
from models.text.speech_alphabet import ALPHABET, END, PUNCTUATION, START, encode_speech
from simulation.starting.voice_clips import VoiceClips

_SYNCHRONOUS = 2
_DONT_EXIT = 0x8000
_UTF8 = 1
_IPA = 2


def in_phonemes(
    clips: VoiceClips, model: TransformerTtsSettings
) -> tuple[VoiceClips, TransformerTtsSettings]:
    """Return the clips with phonemes in place of letters, and a network's settings that read them.

    A text keeps its last sign, where a voice learns to stop.

    Raises:
        ValueError: If a voice is none of espeak-ng's.
    """
    if unknown := sorted(set(clips.voices) - set(START_VOICES)):
        raise ValueError(f"voices must be espeak-ng's, got {', '.join(unknown)}")
    learnt, held_out = _read_all(clips)
    signs = sorted(set("".join([*learnt, *(text for own in held_out for text in own)])))
    alphabet = (
        START + PUNCTUATION + "".join(sign for sign in signs if sign not in START + PUNCTUATION)
    )
    text = msgspec.structs.replace(model.text, alphabet=alphabet)
    settings = msgspec.structs.replace(model, text=text)
    return (
        clips._replace(
            examples=_said(clips.examples, learnt, settings),
            held_out=tuple(
                _said(own, texts, settings)
                for own, texts in zip(clips.held_out, held_out, strict=True)
            ),
            sha256=f"{clips.sha256} in phonemes",
        ),
        settings,
    )


def _read_all(clips: VoiceClips) -> tuple[list[str], list[list[str]]]:
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    data = os.fsencode(espeakng_loader.get_data_path())
    if library.espeak_Initialize(_SYNCHRONOUS, 0, data, _DONT_EXIT) <= 0:
        raise ValueError(f"espeak-ng cannot start with its data in {os.fsdecode(data)}")
    try:
        learnt = [""] * len(clips.examples)
        held_out = []
        for place, voice in enumerate(clips.voices):
            if library.espeak_SetVoiceByName(voice.encode()):
                raise ValueError(f"espeak-ng has no voice {voice!r}")
            for own in torch.nonzero(clips.speakers == place).flatten().tolist():
                learnt[own] = _phonemes(library, letters_of(clips.examples.clip(own)))
            held_out.append(
                [_phonemes(library, letters_of(clip)) for clip in _clips(clips.held_out[place])]
            )
    finally:
        library.espeak_Terminate()
    return learnt, held_out


def _phonemes(library: ctypes.CDLL, letters: str) -> str:
    read = library.espeak_TextToPhonemes
    read.restype = ctypes.c_char_p
    rest = ctypes.c_char_p(letters.strip().encode())
    clauses = []
    while rest.value:
        clauses.append(read(ctypes.byref(rest), _UTF8, _IPA).decode().strip())
    return START + " ".join(clauses).lower() + END


def letters_of(clip: SpeechClip) -> str:
    """Return the text of a clip that is in letters."""
    return "".join(ALPHABET[number - 1] for number in clip.symbols.tolist())


def _clips(examples: SpeechExamples) -> Iterator[SpeechClip]:
    return map(examples.clip, range(len(examples)))


def _said(
    examples: SpeechExamples, texts: Sequence[str], settings: TransformerTtsSettings
) -> SpeechExamples:
    return SpeechExamples.of(
        SpeechClip(clip.frames, torch.tensor(encode_speech(text, settings.text)))
        for clip, text in zip(_clips(examples), texts, strict=True)
    )
