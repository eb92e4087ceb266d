"""The page draws the mels that a voice learnt from, and plays what the server said."""

import base64
import io

import msgspec
import numpy as np
import soundfile
import torch

from models.settings.audio import MelSettings
from models.sound.mel import log_mel
from tests.export.page.node import ask_page

SETTINGS = (
    MelSettings(),
    MelSettings(sample_rate_hz=8000, fft_size=512, window_size=400, hop_size=100, highest_hz=4000),
    MelSettings(
        sample_rate_hz=2000,
        fft_size=60,  # four times fifteen
        window_size=60,
        hop_size=30,
        mel_count=5,
        lowest_hz=50,
        highest_hz=900,
    ),
)


def test_mels_are_those_of_the_library() -> None:
    draw = np.random.default_rng(4)
    sounds = [0.3 * draw.standard_normal(2_501) for _ in SETTINGS]
    cases = [
        (sound.tolist(), msgspec.to_builtins(one))
        for sound, one in zip(sounds, SETTINGS, strict=True)
    ]
    short = ([0.5] * 30, msgspec.to_builtins(SETTINGS[2]))

    *found, of_short = ask_page(mels={"cases": [*cases, short]})["mels"]

    for frames, sound, settings in zip(found, sounds, SETTINGS, strict=True):
        expected = log_mel(torch.from_numpy(sound), settings).T
        np.testing.assert_allclose(np.array(frames), expected, atol=1e-4)
    assert of_short == []  # reflection needs more than half a transform


def test_a_sound_is_played_as_it_came() -> None:
    whole = np.array([0, 1, -1, 32767, -32768, 100], dtype="<i2")
    pcm = base64.b64encode(whole.tobytes()).decode()

    found = ask_page(sounds={"pcm": pcm, "rateHz": 22050})["sounds"]

    np.testing.assert_array_equal(found["samples"], whole / 32768)
    played, rate_hz = soundfile.read(io.BytesIO(base64.b64decode(found["wav"])), dtype="int16")
    assert rate_hz == 22050
    np.testing.assert_array_equal(played, whole)
