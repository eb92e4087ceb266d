"""Voices that a start learns from: those that espeak-ng speaks for it, and public recordings."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from edge_client.datasets.registry import load_dataset, load_speech
from edge_client.datasets.speech.espeak import START_VOICES, start_recordings
from edge_client.datasets.speech_examples import speech_examples
from edge_client.datasets.speech_set import Clip, gather
from models.settings.voice import TransformerTtsSettings
from models.tasks.speech_examples import SpeechExamples
from simulation.starting.texts import NamedRecordings, NamedText

_READABLE = re.compile(r"[A-Za-z' ]+")
_FEWEST_WORDS, _MOST_WORDS = 2, 18
_HELD_OUT_ONE_IN = 24


class VoiceClips(NamedTuple):
    """Clips of several voices.

    Attributes:
        voices: Names.
        examples: All clips that are learnt from.
        speakers: Place of each clip's voice in ``voices``, int64, shape ``(clips,)``.
        held_out: By voice, those that are not.
        sha256: Hex digest of names, texts and voices.
    """

    voices: tuple[str, ...]
    examples: SpeechExamples
    speakers: Tensor
    held_out: tuple[SpeechExamples, ...]
    sha256: str


def read_voices(
    model: TransformerTtsSettings,
    *,
    sentences_per_voice: int,
    texts: Sequence[NamedText],
    recordings: Sequence[NamedRecordings],
) -> VoiceClips:
    """Let espeak-ng speak, read the recordings, and hold every 24th clip of a voice out.

    Args:
        sentences_per_voice: Of each of espeak-ng's.
        texts: Where every second of them comes from; without any all are plain sentences.
        recordings: Sets whose speakers are voices too.

    Raises:
        DatasetError: If the extra is missing, or a set cannot be loaded.
        ValueError: If a text has too few sentences.
    """
    wanted = len(START_VOICES) * (sentences_per_voice // 2)
    spoken = start_recordings(sentences_per_voice, _sentences(texts, wanted) if texts else ())
    clips = list(gather(spoken, clip_settings=model.clips, text_settings=model.text).clips)
    for one in recordings:
        read = load_speech(one.name, one.path, clip_settings=model.clips, text_settings=model.text)
        clips += read.clips
    voices = tuple(dict.fromkeys(clip.speaker for clip in clips))
    by_voice = [[clip for clip in clips if clip.speaker == voice] for voice in voices]
    learnt = [clip for own in by_voice for clip in _others(own)]
    places = {voice: place for place, voice in enumerate(voices)}
    return VoiceClips(
        voices,
        speech_examples(learnt, model),
        torch.tensor([places[clip.speaker] for clip in learnt]),
        tuple(speech_examples(own[::_HELD_OUT_ONE_IN], model) for own in by_voice),
        _digest(clips),
    )


def _others(clips: Sequence[Clip]) -> Iterator[Clip]:
    return (clip for place, clip in enumerate(clips) if place % _HELD_OUT_ONE_IN)


def _digest(clips: Sequence[Clip]) -> str:
    known = [(clip.name, clip.speaker, clip.text) for clip in clips]
    return hashlib.sha256(msgspec.json.encode(known)).hexdigest()


def _sentences(texts: Sequence[NamedText], count: int) -> list[str]:
    """Return so many different sentences of plain letters, the texts in turn.

    Raises:
        ValueError: If there are fewer.
    """
    found: dict[str, None] = {}
    share = -(-count // len(texts))
    for text in texts:
        found.update(dict.fromkeys(islice(_plain(text), share)))
    if len(found) < count:
        raise ValueError(
            f"the texts must have {count} different sentences of {_FEWEST_WORDS} to {_MOST_WORDS} "
            f"words in plain letters, got {len(found)}; lower --sentences, or give another --text"
        )
    return list(found)[:count]


def _plain(text: NamedText) -> Iterator[str]:
    users = load_dataset(text.name, text.path).train
    written = (" ".join(sentence) for user in sorted(users) for sentence in users[user])
    for sentence in dict.fromkeys(written):
        words = sentence.split()
        if _FEWEST_WORDS <= len(words) <= _MOST_WORDS and _READABLE.fullmatch(sentence):
            yield sentence
