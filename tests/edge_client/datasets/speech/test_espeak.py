import sys

import pytest
import torch

from edge_client.datasets.clip_sound import read_clip
from edge_client.datasets.registry import load_dataset, load_speech
from edge_client.datasets.speech.espeak import VOICES, SpokenByEspeak, espeak_recordings, load_one
from edge_client.datasets.speech.plain_sentences import plain_sentences
from edge_client.datasets.speech_set import gather
from edge_client.datasets.text_set import DatasetError
from models.settings.audio import ClipSettings, MelSettings
from models.sound.mel import log_mel
from models.text.speech_alphabet import SpeechTextSettings


def test_every_voice_speaks_its_own_sentences_and_sounds_like_nobody_else() -> None:
    recordings = espeak_recordings(VOICES, 1)
    speech = gather(recordings, clip_settings=ClipSettings(), text_settings=SpeechTextSettings())
    same = [SpokenByEspeak(voice, "The fox is here.").read() for voice in VOICES]

    assert [clip.speaker for clip in speech.clips] == list(VOICES)
    assert len({clip.text for clip in speech.clips}) == len(VOICES)
    for clip in speech.clips:
        samples = read_clip(clip, ClipSettings(), sample_rate_hz=22_050)
        # Between 5 and 25 letters a second, as people speak.
        assert len(clip.text) / 25 < len(samples) / 22_050 < len(clip.text) / 5
        assert log_mel(samples, MelSettings()).shape[0] == 80
    assert len({sound.channels.tobytes() for sound in same}) == len(VOICES)


def test_a_sentence_is_the_same_bits_whatever_was_spoken_before() -> None:
    sentence = SpokenByEspeak("en-us+f3", "The fox is here.")

    first = sentence.read()
    SpokenByEspeak("en-gb-scotland+m3", "Somebody else said something.").read()

    assert sentence.read().channels.tobytes() == first.channels.tobytes()


def test_a_voice_that_is_not_there_is_refused() -> None:
    with pytest.raises(DatasetError, match="no voice 'xx-nobody'"):
        SpokenByEspeak("xx-nobody", "Hello.").read()


def test_without_the_extra_the_hint_is_clear_and_nothing_else_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)

    with pytest.raises(DatasetError, match=r"install sotto\[speech-demo\], or give recordings"):
        load_speech("espeak", clip_settings=ClipSettings(), text_settings=SpeechTextSettings())
    assert load_dataset("manual").train


def test_no_sentence_comes_twice_and_the_same_generator_gives_the_same_ones() -> None:
    first, again = (
        plain_sentences(500, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )

    assert first == again
    assert len(set(first)) == 500
    assert all(5 <= len(sentence.split()) <= 15 for sentence in first)
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in first)


def test_more_sentences_than_there_are_patterns_for_are_refused() -> None:
    with pytest.raises(ValueError, match=r"count must be in \[0, 10000\], got 10001"):
        plain_sentences(10_001, generator=torch.Generator())


def test_one_voice_reads_for_many_devices() -> None:
    pytest.importorskip("espeakng_loader")
    recordings = load_one(None)

    assert len(recordings) == 400
    assert {recording.speaker for recording in recordings} == {"en-us"}
    assert len({recording.written for recording in recordings}) == 400
