import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from models.settings.audio import ClipSettings, MelSettings
from models.sound.mel import (
    SoundError,
    frame_count,
    log_mel,
    magnitudes,
)
from models.sound.mel_filters import mel_filters
from tests.models.references.mel_signal import reference_signal

REFERENCE = Path(__file__).parents[1] / "references" / "librosa_mel.npz"
SETTINGS = MelSettings()


def tone(hertz: float, seconds: float = 0.5) -> torch.Tensor:
    times = torch.arange(int(seconds * 22_050), dtype=torch.float64) / 22_050
    return 0.5 * torch.sin(2 * math.pi * hertz * times)


def test_the_log_mel_is_librosas() -> None:
    ours = log_mel(torch.from_numpy(reference_signal()), SETTINGS)

    with np.load(REFERENCE) as reference:
        theirs = torch.from_numpy(reference["log_mel"])
    assert ours.shape == (80, 9)
    assert float((ours - theirs).abs().max()) < 1e-6
    # Silence is compared too: the clamp, ln 1e-5.
    assert float(theirs.min()) == pytest.approx(math.log(1e-5))


def test_float32_follows_float64_where_there_is_sound() -> None:
    signal = torch.from_numpy(reference_signal())

    exact = log_mel(signal, SETTINGS)
    single = log_mel(signal.float(), SETTINGS)

    assert single.dtype == torch.float32
    assert_close(single.double()[:, :6], exact[:, :6], atol=1e-3, rtol=0)


def test_the_filters_are_librosas_and_have_an_area_of_one() -> None:
    filters = torch.from_numpy(mel_filters(SETTINGS))

    with np.load(REFERENCE) as reference:
        assert_close(filters.sum(1), torch.from_numpy(reference["filter_sums"]))
        assert_close(filters.amax(1), torch.from_numpy(reference["filter_peaks"]))
    # Wide triangles are sampled finely enough for their sum to be their area.
    assert_close(filters.sum(1)[-20:] * 22_050 / 1024, torch.ones(20).double(), atol=0.02, rtol=0)


def test_a_tone_sounds_in_the_channel_around_it() -> None:
    # 1000 Hz is 15 mels; 81 steps reach 8000 Hz = 15 + 27 ln 8 / ln 6.4 = 45.25 mels, so
    # channel k peaks at (k + 1) * 45.25 / 81 mels: 15 mels are nearest to k = 26 (15.08).
    loudest = log_mel(tone(1000.0), SETTINGS)[:, 20].argmax()

    assert int(loudest) == 26


def test_a_batch_is_its_clips_one_by_one() -> None:
    clips = torch.stack([tone(300.0), tone(3000.0)])

    both = log_mel(clips, SETTINGS)

    assert both.shape == (2, 80, frame_count(clips.shape[-1], SETTINGS))
    assert_close(both[1], log_mel(clips[1], SETTINGS))


def test_too_little_sound_for_a_frame_is_refused() -> None:
    with pytest.raises(SoundError, match=r"at least 513 samples \(0.023 s\), got 512"):
        magnitudes(torch.zeros(512), SETTINGS)
    assert magnitudes(torch.zeros(513), SETTINGS).shape == (513, 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mel_count": 0}, "mel_count must be >= 1, got 0"),
        ({"fft_size": 1023}, "fft_size must be even"),
        ({"window_size": 2048}, "window_size must be <= fft_size 1024, got 2048"),
        ({"hop_size": 600}, "hop_size must be <= 512"),
        ({"highest_hz": 12_000.0}, "at most 11025"),
        ({"lowest_hz": 9000.0}, "must rise"),
        ({"floor": 0.0}, "floor must be > 0"),
    ],
)
def test_a_transform_that_cannot_be_is_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MelSettings(**changed)  # type: ignore[arg-type]  # Wrong on purpose.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shortest_s": 30.0}, "shortest_s must be > 0 and < longest_s"),
        ({"longest_s": math.inf}, "longest_s"),
        ({"silence_db": 0.0}, "silence_db must be > 0"),
        ({"margin_s": -1.0}, "margin_s must be >= 0"),
        ({"loudness_db": 3.0}, "loudness_db must be < 0"),
    ],
)
def test_clip_rules_that_cannot_be_kept_are_refused(
    changed: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ClipSettings(**changed)
