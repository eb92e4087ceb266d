"""The development recordings, where they are: counts and lengths that their publishers state."""

import os
from pathlib import Path

import pytest

from edge_client.datasets.clip_sound import read_clip
from edge_client.datasets.reading import read_text
from edge_client.datasets.registry import load_speech
from edge_client.datasets.speech_set import SpeechSet
from models.settings.audio import ClipSettings
from models.text.speech_alphabet import SpeechTextSettings
from models.text.spoken_text import prepare_speech

DATA = Path(os.environ.get("SOTTO_DATA", Path(__file__).parents[4] / "shared" / "data"))
TEXTS = SpeechTextSettings()


def needs(folder: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        not (DATA / folder).is_dir(), reason=f"{DATA / folder} is absent; set SOTTO_DATA"
    )


def load(name: str) -> SpeechSet:
    return load_speech(name, DATA, clip_settings=ClipSettings(), text_settings=TEXTS)


def minutes(speech: SpeechSet) -> float:
    return sum(clip.sound.stated_s() or 0 for clip in (*speech.clips, *speech.test)) / 60


@needs("ljspeech")
def test_ljspeech_has_its_clips_and_minutes_and_is_read() -> None:
    speech = load("ljspeech")

    # The subset at hand; the whole set has 13,100 clips.
    if len(speech.clips) == 325:
        assert minutes(speech) == pytest.approx(35.2, abs=0.05)
    samples = read_clip(speech.clips[0], ClipSettings(), sample_rate_hz=22_050)
    assert 9 * 22_050 < len(samples) < 10 * 22_050


@needs("ljspeech")
def test_our_words_are_those_of_ljspeechs_own_normalisation() -> None:
    lines = read_text(DATA / "ljspeech" / "metadata.csv").splitlines()[:325]
    pairs = [line.split("|")[1:] for line in lines]
    differing = [written for written, spoken in pairs if written != spoken]

    ours = [prepare_speech(written, TEXTS).text for written, _ in pairs]
    theirs = [prepare_speech(spoken, TEXTS).text for _, spoken in pairs]

    # 52 of these lines were changed by hand: years, sums of money, dates.
    assert len(differing) == 52
    assert ours == theirs


@needs("kathleen")
def test_kathleen_has_its_prompts() -> None:
    speech = load("kathleen")

    assert len(speech.clips) == 120
    assert minutes(speech) == pytest.approx(5.9, abs=0.05)


@needs("an4")
def test_an4_has_its_speakers() -> None:
    speech = load("an4")

    assert len(speech.clips) == 311
    assert len({clip.speaker for clip in speech.clips}) == 24
    assert minutes(speech) == pytest.approx(13.6, abs=0.05)


@pytest.mark.slow
@needs("fsdd")
def test_spoken_digits_have_their_speakers_and_their_test_part() -> None:
    speech = load("fsdd")

    # Six speakers, ten digits, fifty each; numbers 0 to 4 are for testing.
    assert (len(speech.clips), len(speech.test)) == (2700, 300)
    assert len({clip.speaker for clip in speech.clips}) == 6
    assert minutes(speech) == pytest.approx(21.9, abs=0.05)
    assert len(read_clip(speech.clips[0], ClipSettings(), sample_rate_hz=22_050)) > 0.12 * 22_050
