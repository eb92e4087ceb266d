import math
import sys

import pytest
import torch
from torch.testing import assert_close

from models.settings.audio import ClipSettings
from models.sound.mel import SoundError
from models.sound.waveform import mono, resample, set_loudness, trim_silence

SETTINGS = ClipSettings()
RATE = 22_050


def tone(hertz: float, seconds: float, rate: int = RATE) -> torch.Tensor:
    times = torch.arange(round(seconds * rate)) / rate
    return 0.5 * torch.sin(2 * math.pi * hertz * times)


def rms_db(samples: torch.Tensor) -> float:
    return 20 * math.log10(float(samples.double().square().mean().sqrt()))


def test_channels_are_averaged() -> None:
    assert_close(mono(torch.tensor([[1.0, 0.0], [-0.5, 0.5]])), torch.tensor([0.5, 0.0]))


def test_no_samples_and_samples_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(SoundError, match="must have samples, got none"):
        mono(torch.zeros(0, 1))
    with pytest.raises(SoundError, match="must be finite, got 2 that are not"):
        mono(torch.tensor([[0.0, 0.0], [math.nan, math.nan], [0.0, math.inf]]))


@pytest.mark.parametrize("from_hz", [8_000, 16_000, 44_100, 48_000])
def test_a_tone_stays_the_same_tone_at_another_rate(from_hz: int) -> None:
    there = resample(tone(440.0, 0.5, from_hz), from_hz, RATE)

    wanted = tone(440.0, 0.5)
    assert there.shape == wanted.shape and there.dtype == torch.float32
    # The ends, where the filter sees silence, are left out.
    assert_close(there[500:-500], wanted[500:-500], atol=2e-3, rtol=0)


def test_what_the_lower_rate_cannot_hold_is_filtered_out_not_folded_back() -> None:
    # 15 kHz would come back as 7.05 kHz, at the tone's own -9 dB.
    there = resample(tone(15_000.0, 0.5, 48_000), 48_000, RATE)

    assert rms_db(there[500:-500]) < -60


def test_without_soxr_only_another_rate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soxr", None)

    assert torch.equal(resample(torch.ones(3), 8000, 8000), torch.ones(3))
    with pytest.raises(SoundError, match=r"soxr is missing; install sotto\[speech\]"):
        resample(torch.ones(3), 8000, 22_050)


def test_silence_at_both_ends_goes_but_for_a_margin_and_a_pause_inside_stays() -> None:
    frame = 220  # 10 ms
    hiss = 1e-4 * torch.ones(50 * frame)
    speech, pause = tone(300.0, 1.0)[: 30 * frame], torch.zeros(20 * frame)
    samples = torch.cat([hiss, speech, pause, speech, hiss])

    trimmed = trim_silence(samples, RATE, SETTINGS)

    # 0.025 s are 551 samples on either side; frames lie on multiples of 220.
    assert_close(trimmed, samples[50 * frame - 551 : 130 * frame + 551])


def test_sound_without_silence_around_it_stays_whole() -> None:
    samples = tone(300.0, 0.3)

    assert torch.equal(trim_silence(samples, RATE, SETTINGS), samples)


@pytest.mark.parametrize("gain", [0.001, 0.1, 1.0])
def test_speech_comes_to_one_level_whatever_its_own_and_whatever_the_pauses(gain: float) -> None:
    speech = gain * tone(300.0, 0.5)[: 50 * 220]
    samples = torch.cat([speech, torch.zeros(200 * 220)])

    louder = set_loudness(samples, RATE, SETTINGS)

    assert rms_db(louder[: 50 * 220]) == pytest.approx(-23.0, abs=0.01)


def test_a_peak_is_not_clipped_for_the_sake_of_the_level() -> None:
    # One click in quiet sound: reaching -23 dB would take the click to 50.
    samples = 0.001 * tone(300.0, 0.5)
    samples[1000] = 0.4

    louder = set_loudness(samples, RATE, ClipSettings(silence_db=80.0))

    assert float(louder.abs().max()) == pytest.approx(0.98)
    assert_close(louder, samples * (0.98 / 0.4))


def test_silence_alone_is_refused() -> None:
    with pytest.raises(SoundError, match="got silence alone"):
        trim_silence(torch.zeros(RATE), RATE, SETTINGS)
