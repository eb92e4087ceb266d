import math
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from models.sound.mel import SoundError
from simulation.listening.sound_writer import write_wav


def read(path: Path) -> tuple[list[int], int]:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return np.frombuffer(file.readframes(9), dtype="<i2").tolist(), file.getframerate()


def test_full_scale_is_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.wav"

    write_wav(path, torch.tensor([0.0, 0.5, -0.98]), 22_050)

    # 0.5 and 0.98 of 32,767, to the nearest.
    assert read(path) == ([0, 16384, -32112], 22_050)


def test_what_is_too_loud_becomes_quieter_as_a_whole(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", torch.tensor([1.0, -2.0]), 8_000)

    assert read(tmp_path / "a.wav") == ([16056, -32112], 8_000)


@pytest.mark.parametrize("bad", [torch.zeros(0), torch.zeros(2, 3), torch.tensor([math.nan])])
def test_no_sound_is_refused(tmp_path: Path, bad: torch.Tensor) -> None:
    with pytest.raises(SoundError, match="a WAV file needs"):
        write_wav(tmp_path / "a.wav", bad, 8_000)
