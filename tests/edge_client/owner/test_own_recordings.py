"""What the doctor says of a person's recordings, good ones and bad."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from edge_client.owner.own_recordings import examine_recordings
from models.settings.audio import ClipSettings, MelSettings
from models.settings.voice import TransformerTtsSettings

RATE = 22_050
VOICE = TransformerTtsSettings(
    mel=MelSettings(sample_rate_hz=RATE), clips=ClipSettings(longest_s=10.0)
)
Samples = NDArray[np.float64]


def syllables(seconds: float, rate: int = RATE) -> Samples:
    """Return a hum that comes and goes three times a second, with a hiss 40 dB below it."""
    times = np.arange(round(seconds * rate)) / rate
    hiss = np.random.default_rng(1).normal(0, 0.003, len(times))
    sounding = np.sin(2 * np.pi * 3 * times) > 0
    return 0.4 * np.sin(2 * np.pi * 150 * times) * sounding + hiss


def music(seconds: float) -> Samples:
    times = np.arange(round(seconds * RATE)) / RATE
    return syllables(seconds) + 0.1 * np.sin(2 * np.pi * 440 * times)


def told(folder: Path) -> dict[str, tuple[bool, str]]:
    return {one.subject: (one.good, one.text) for one in examine_recordings(folder, VOICE)}


def record(
    folder: Path,
    count: int,
    *,
    sound: Callable[[float], Samples] = syllables,
    seconds: float = 9.0,
    rate: int = RATE,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        soundfile.write(folder / f"{number:03d}.wav", sound(seconds), rate, subtype="FLOAT")
        (folder / f"{number:03d}.txt").write_text("A sentence.")


def test_a_minute_of_speech_is_fine(tmp_path: Path) -> None:
    record(tmp_path / "ada", 10)

    found = told(tmp_path / "ada")

    # Of ten, eight are trained on.
    assert found["recordings"][1] == (
        "10 recordings: 8 to train on, 72 s of them, 2 of the newest to score on"
    )
    assert all(good for good, _ in found.values())


def test_four_seconds_are_too_few(tmp_path: Path) -> None:
    record(tmp_path / "ada", 1, seconds=4.0)

    good, text = told(tmp_path / "ada")["recordings"]

    assert not good
    assert "1 to train on, 4 s of them" in text
    assert "record more" in text


@pytest.mark.parametrize(
    ("sound", "rate", "subject", "text"),
    [
        (lambda s: np.clip(4 * syllables(s), -1, 1), RATE, "clipping", "peaks of 10 of 10"),
        (music, RATE, "pauses", "music, noise or an echo"),
        (lambda s: syllables(s, 8_000), 8_000, "sampling rate", "nothing above 4,000 Hz"),
    ],
)
def test_each_fault_is_told_and_no_other(
    tmp_path: Path, sound: Callable[[float], Samples], rate: int, subject: str, text: str
) -> None:
    record(tmp_path / "ada", 10, sound=sound, rate=rate)

    found = told(tmp_path / "ada")

    assert {name for name, (good, _) in found.items() if not good} == {subject}
    assert text in found[subject][1]


def test_two_people_are_no_voice(tmp_path: Path) -> None:
    record(tmp_path / "both" / "ada", 5)
    record(tmp_path / "both" / "ben", 5)

    good, text = told(tmp_path / "both")["speaker"]

    assert not good
    assert "2 people (ada, ben), and a device has one voice" in text


def test_what_no_round_could_read_is_told_as_a_round_would(tmp_path: Path) -> None:
    record(tmp_path / "ada", 1)
    (tmp_path / "ada" / "000.txt").unlink()

    ((good, text),) = told(tmp_path / "ada").values()

    assert not good
    assert "has no 000.txt" in text
