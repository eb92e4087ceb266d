import math
import sys

import pytest
import torch

from models.listening.time_warping import WarpingPath
from models.settings.audio import MelSettings
from models.sound.mel import SoundError
from simulation.listening.intelligibility import MissingMeasureError
from simulation.listening.pitch import PitchErrors, pitch_errors, pitch_track
from tests.simulation.listening.stand_ins import noise, tone

SETTINGS = MelSettings()


def straight(frames: int) -> WarpingPath:
    return WarpingPath(torch.arange(frames), torch.arange(frames))


def test_errors_are_those_counted_by_hand() -> None:
    reference = torch.tensor([0.0, 100.0, 200.0, 200.0, 0.0])
    spoken = torch.tensor([100.0, 100.0, 220.0, 100.0, 0.0])

    found = pitch_errors(reference, spoken, straight(5))

    # Voiced in both: 0, 20 and -100 Hz; 0 cents, 1200 log2 1.1 = 165.00, and an octave.
    assert (found.pairs, found.voiced_in_both, found.voiced_in_one) == (5, 3, 1)
    assert found.rmse_hz == pytest.approx(math.sqrt((20**2 + 100**2) / 3))
    assert found.rmse_cents == pytest.approx(math.sqrt((165.004**2 + 1200**2) / 3), abs=1e-2)
    assert found.voicing_error == pytest.approx(1 / 5)


def test_frames_are_compared_along_the_path() -> None:
    path = WarpingPath(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 2]))

    found = pitch_errors(torch.tensor([100.0, 0.0]), torch.tensor([110.0, 120.0, 0.0]), path)

    assert found.rmse_hz == pytest.approx(math.sqrt((10**2 + 20**2) / 2))
    assert found.voicing_error == 0


def test_sums_of_utterances_weigh_every_pair_alike() -> None:
    one = pitch_errors(torch.tensor([100.0]), torch.tensor([110.0]), straight(1))
    three = pitch_errors(torch.full((3,), 100.0), torch.full((3,), 100.0), straight(3))

    assert (one + three).rmse_hz == pytest.approx(math.sqrt(100 / 4))


def test_where_nothing_is_voiced_there_is_no_error_of_pitch() -> None:
    found = pitch_errors(torch.zeros(3), torch.tensor([0.0, 100.0, 0.0]), straight(3))

    assert (found.rmse_hz, found.rmse_cents) == (None, None)
    assert found.voicing_error == pytest.approx(1 / 3)
    assert PitchErrors().voicing_error is None


def test_a_path_beyond_the_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="within 2 and 3 frames, got 3 and 3"):
        pitch_errors(torch.zeros(2), torch.zeros(3), straight(3))


def test_without_the_package_the_hint_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyworld", None)

    with pytest.raises(MissingMeasureError, match=r"install sotto\[pitch\].*C\+\+ compiler"):
        pitch_track(tone(200), SETTINGS)


@pytest.mark.parametrize("hertz", [90.0, 200.0, 330.0])
def test_a_tone_has_its_own_pitch(hertz: float) -> None:
    pytest.importorskip("pyworld", exc_type=ImportError)

    track = pitch_track(tone(hertz), SETTINGS)

    assert len(track) == 1 + RATE_FRAMES
    # Away from the ends, within a tenth of a semitone: 10 cents are 0.58 %.
    assert track[10:-10].numpy() == pytest.approx(hertz, rel=0.0058)


def test_noise_and_silence_have_no_steady_pitch() -> None:
    pytest.importorskip("pyworld", exc_type=ImportError)

    assert not bool(pitch_track(torch.zeros(22_050), SETTINGS).any())
    assert float((pitch_track(noise(), SETTINGS) > 0).float().mean()) < 0.5


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.zeros(0), "needs mono sound"),
        (torch.zeros(2, 100), "needs mono sound"),
        (torch.full((22_050,), math.nan), "finite"),
    ],
)
def test_sound_that_has_none_is_refused(bad: torch.Tensor, message: str) -> None:
    pytest.importorskip("pyworld", exc_type=ImportError)

    with pytest.raises(SoundError, match=message):
        pitch_track(bad, SETTINGS)


RATE_FRAMES = 22_050 // 256
