import wave
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from edge_client.child.own_examples import OwnRecordings
from edge_client.datasets.clip_sound import read_clip
from edge_client.datasets.registry import load_speech
from edge_client.datasets.speech_examples import speech_examples
from edge_client.datasets.speech_set import Clip
from edge_client.datasets.text_set import DatasetError
from models.settings.voice import TransformerTtsSettings
from models.sound.mel import log_mel
from models.tasks.speech_examples import SpeechExamples
from models.text.speech_alphabet import encode_speech
from tests.models.tiny_voice import TINY

VOICE = msgspec.structs.replace(TINY, longest_text=20)


def record(
    folder: Path,
    name: str,
    said: str,
    *,
    seconds: float = 0.5,
    rate: int = 8000,
    pitch_hz: float = 300.0,
) -> None:
    times = np.arange(int(seconds * rate)) / rate
    samples = (0.4 * np.sin(2 * np.pi * pitch_hz * times) * 2**15).astype("<i2")
    with wave.open(str(folder / f"{name}.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    (folder / f"{name}.txt").write_text(said, encoding="utf-8")


def clips(folder: Path, voice: TransformerTtsSettings = VOICE) -> tuple[Clip, ...]:
    found = load_speech("recordings", folder, clip_settings=voice.clips, text_settings=voice.text)
    return found.clips


def test_a_recording_becomes_whole_steps_of_log_mels_and_numbered_characters(
    tmp_path: Path,
) -> None:
    record(tmp_path, "one", "Number 4")
    (clip,) = clips(tmp_path)

    made = speech_examples([clip], VOICE).clip(0)

    # Recorded at 8 kHz, and learnt at the voice's 2 kHz: half a second is 15.6 hops of 64 samples.
    samples = read_clip(clip, VOICE.clips, sample_rate_hz=2000)
    mels = log_mel(samples, VOICE.mel).t()
    assert len(samples) == pytest.approx(1000, abs=20)
    assert made.frames.shape == (len(mels) + len(mels) % 2, 5)
    assert_close(made.frames[: len(mels)], mels)
    assert torch.equal(made.frames[-1], mels[-1])
    assert made.symbols.tolist() == encode_speech(" number four.", VOICE.text)


@pytest.mark.parametrize("seconds", [0.5, 0.55, 0.6])
def test_the_last_step_is_filled_up_with_its_last_frame(tmp_path: Path, seconds: float) -> None:
    voice = msgspec.structs.replace(VOICE, reduction_factor=7)
    record(tmp_path, "one", "Hello", seconds=seconds)

    made = speech_examples(clips(tmp_path), voice).clip(0).frames

    plain = speech_examples(clips(tmp_path), msgspec.structs.replace(voice, reduction_factor=1))
    given = plain.clip(0).frames
    assert len(made) % 7 == 0
    assert 0 <= len(made) - len(given) < 7
    assert torch.equal(made[len(given) :], given[-1:].expand(len(made) - len(given), -1))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    record(tmp_path, "one", "Hello")
    before = speech_examples(clips(tmp_path), VOICE)
    record(tmp_path, "one", "Hello", pitch_hz=700.0, seconds=0.6)

    after = speech_examples(clips(tmp_path), VOICE)

    assert after.frames.shape != before.frames.shape
    again = speech_examples(clips(tmp_path), VOICE)
    assert again.clip(0).frames.data_ptr() != after.clip(0).frames.data_ptr()
    assert torch.equal(again.frames, after.frames)


def test_a_device_trains_on_its_first_recordings_and_holds_out_the_last_fifth(
    tmp_path: Path,
) -> None:
    for number in range(10):
        record(tmp_path, f"clip{number}", f"Say {'abcdefghij'[number]}", seconds=0.4)

    own = OwnRecordings.read(tmp_path, VOICE)

    def said(examples: SpeechExamples) -> list[str]:
        texts = (examples.clip(place).symbols.tolist() for place in range(len(examples)))
        return ["".join(VOICE.text.alphabet[number - 1] for number in text) for text in texts]

    assert said(own.training()) == [f" say {letter}." for letter in "abcdefgh"]
    assert said(own.held_out()) == [" say i.", " say j."]


def test_recordings_that_are_of_no_use_are_named(tmp_path: Path) -> None:
    record(tmp_path, "wordy", "This is too long a text")
    with pytest.raises(DatasetError, match=r"wordy\.wav: its text .* at most 20 .*, got 25"):
        speech_examples(clips(tmp_path), VOICE)

    (tmp_path / "wordy.txt").write_text("Oh", encoding="utf-8")
    record(tmp_path, "wordy", "Oh", seconds=2.5)
    with pytest.raises(DatasetError, match=r"wordy\.wav: it must last at most 2 s"):
        clips(tmp_path)


def test_one_recording_is_not_held_out(tmp_path: Path) -> None:
    record(tmp_path, "one", "Hello")

    own = OwnRecordings.read(tmp_path, VOICE)

    assert len(own.training()) == 1
    with pytest.raises(DatasetError, match="at least 1 to score on, got 0"):
        own.held_out()
