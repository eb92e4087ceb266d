"""Sound and clips that a test can reason about; nothing here is speech."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edge_client.datasets.sound_file import Sound
from edge_client.datasets.speech_set import Clip
from models.settings.audio import ClipSettings, MelSettings
from simulation.listening.corpus import Corpus

RATE = 22_050
_SYLLABLE_S = 0.15


def tone(hertz: float, seconds: float = 1.0) -> Tensor:
    """Return a voiced sound: ten harmonics, ever softer."""
    times = torch.arange(int(seconds * RATE), dtype=torch.float64) / RATE
    parts = [torch.sin(2 * math.pi * hertz * k * times) / k for k in range(1, 11)]
    return 0.1 * torch.stack(parts).sum(0)


def noise(seconds: float = 1.0, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.1 * torch.randn(int(seconds * RATE), generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Sung:
    """Sing each letter of a text for 0.15 s at a height of its own."""

    words: str

    @property
    def label(self) -> str:
        return f"sung {self.words}"

    def stated_s(self) -> float | None:
        return len(self.words) * _SYLLABLE_S

    def read(self) -> Sound:
        heights = [200.0 * 1.25 ** (ord(letter) - ord("a")) for letter in self.words]
        sound = torch.cat([tone(height, _SYLLABLE_S) for height in heights])
        return Sound(sound.float().numpy()[:, np.newaxis], RATE)


def sung(name: str, words: str, speaker: str = "anna") -> Clip:
    return Clip(name, speaker, f" {words}.", Sung(words))


def corpus() -> Corpus:
    """Return four clips to learn from and two that are held out, by one singer."""
    train = [sung(f"anna/{place}", words) for place, words in enumerate(TRAINED)]
    held_out = [sung(f"anna/t{place}", words) for place, words in enumerate(HELD_OUT)]
    return Corpus("sung", tuple(train), tuple(held_out), MelSettings(), ClipSettings())


TRAINED = ("abcd", "dbca", "cadb", "bdac")
HELD_OUT = ("adcb", "cbad")
