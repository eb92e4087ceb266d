import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from edge_client.datasets.speech.espeak import SpokenByEspeak
from models.listening.edit_distance import reading_errors
from models.listening.heard_letters import heard_letters
from simulation.listening.intelligibility import MissingMeasureError
from simulation.listening.second_judge import _transcriber, second_reading
from tests.simulation.listening.stand_ins import RATE, tone


class Scribe:
    """A package in place of Moonshine, which writes the same for any sound and keeps the sound."""

    ModelArch = SimpleNamespace(TINY="tiny")

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        self.asked: list[object] = []

    def get_assets_path(self) -> Path:
        return Path("assets")

    def Transcriber(self, folder: str, arch: str) -> "Scribe":  # noqa: N802
        self.asked += [folder, arch]
        return self

    def transcribe_without_streaming(self, samples: list[float], rate: int) -> SimpleNamespace:
        self.asked += [len(samples), min(samples), max(samples), rate]
        return SimpleNamespace(lines=[SimpleNamespace(text=line) for line in self.lines])


@pytest.fixture(autouse=True)
def _anew() -> None:
    _transcriber.cache_clear()


@pytest.mark.parametrize(
    ("lines", "heard"),
    [
        (
            ("Late at night,", "my uncle wanted 2 stones!"),
            "late at night my uncle wanted two stones",
        ),
        ((), ""),
        (("…",), ""),
        (("Привет",), ""),
    ],
)
def test_what_is_written_is_compared_as_it_is_said(
    lines: tuple[str, ...], heard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scribe = Scribe(*lines)
    monkeypatch.setitem(sys.modules, "moonshine_voice", scribe)

    assert second_reading(9 * tone(200, 1.0), RATE) == heard

    folder, arch, count, least, most, rate = scribe.asked
    assert (folder, arch, rate) == (str(Path("assets/tiny-en")), "tiny", 16_000)
    # A second, and silence around it; no louder than a microphone gives.
    assert count == 16_000 + 3_200 + 8_000
    assert (least, most) == (-1, 1)


def test_without_the_package_the_hint_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moonshine_voice", None)

    with pytest.raises(MissingMeasureError, match=r"install sotto\[judge\]"):
        second_reading(torch.zeros(RATE), RATE)


def test_the_package_itself_hears_a_synthesiser() -> None:
    pytest.importorskip("moonshine_voice", reason="extra judge is not installed")
    pytest.importorskip("espeakng_loader")
    text = "The old man lives in the small house behind the church."
    sound = SpokenByEspeak("en-us", text).read()

    heard = second_reading(torch.tensor(sound.channels[:, 0]), sound.sample_rate_hz)

    said = heard_letters(text.lower())
    assert reading_errors(said, heard).rate < 0.5 < reading_errors(said, heard[::-1]).rate
