import math
import sys

import pytest
import torch
from torch import Tensor

from models.sound.mel import SoundError
from simulation.listening.intelligibility import MissingMeasureError, pesq, stoi
from tests.simulation.listening.stand_ins import RATE, noise, tone


def warble() -> Tensor:
    """Return two seconds that swell four times a second, as speech does by syllables."""
    times = torch.arange(2 * RATE, dtype=torch.float64) / RATE
    swell = 0.55 + 0.45 * torch.sin(2 * math.pi * 4 * times)
    return swell * (tone(200, 2.0) + 0.2 * noise(2.0, seed=3))


def test_the_sound_itself_is_understood_and_noise_drowns_it() -> None:
    clean = warble()

    found = [stoi(clean, clean + loud * noise(2.0, seed=2), RATE) for loud in (0, 1, 10)]

    assert found[0] == pytest.approx(1, abs=1e-3)
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.5


def test_another_rate_is_heard_as_another_sound() -> None:
    clean = warble()
    disturbed = clean + noise(2.0, seed=2)

    assert stoi(clean, disturbed, RATE) != stoi(clean, disturbed, RATE // 2)


@pytest.mark.parametrize(
    ("reference", "spoken", "message"),
    [
        (tone(200), tone(200, 0.5), "as long as each other"),
        (torch.zeros(2, 100), torch.zeros(2, 100), "must be mono"),
        (torch.zeros(RATE), tone(200), "the reference sound must not be silent"),
        (tone(200), torch.zeros(RATE), "the spoken sound must not be silent"),
        (tone(200), torch.full((RATE,), math.nan), "spoken sound must be finite"),
        (torch.zeros(0), torch.zeros(0), "must not be silent"),
        (tone(200, 0.2), tone(200, 0.2), r"0\.4 s of speech, got 0\.20 s"),
    ],
)
def test_sounds_that_cannot_be_compared_are_refused(
    reference: Tensor, spoken: Tensor, message: str
) -> None:
    with pytest.raises(SoundError, match=message):
        stoi(reference, spoken, RATE)


def test_without_the_packages_the_hints_are_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pystoi", None)
    monkeypatch.setitem(sys.modules, "pesq", None)

    with pytest.raises(MissingMeasureError, match=r"install sotto\[listening\]"):
        stoi(tone(200), tone(200), RATE)
    with pytest.raises(MissingMeasureError, match="pip install pesq"):
        pesq(tone(200), tone(200), RATE)


def test_quality_falls_with_noise() -> None:
    pytest.importorskip("pesq")
    clean = warble()

    found = [pesq(clean, clean + loud * noise(2.0, seed=2), RATE) for loud in (0, 1)]

    # The largest value of P.862.2.
    assert found[0] == pytest.approx(4.644, abs=1e-2)
    assert found[1] < found[0]
