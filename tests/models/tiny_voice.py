"""A voice small enough to follow, and clips of noise for it."""

import msgspec
import torch
from torch import Tensor

from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network, voice_network
from models.networks.voice import TransformerTts
from models.settings.audio import ClipSettings, MelSettings
from models.settings.model import schema_of
from models.settings.voice import TransformerTtsSettings
from models.tasks.speech_examples import SpeechClip, SpeechExamples

# Five channels of 2 kHz sound, 32 frames a second, at most 2 s.
MEL = MelSettings(
    sample_rate_hz=2000, fft_size=128, window_size=128, hop_size=64, mel_count=5, highest_hz=1000
)
TINY = TransformerTtsSettings(
    hidden_size=8,
    head_count=2,
    layer_count=2,
    feedforward_size=12,
    reduction_factor=2,
    embedding_size=6,
    text_channels=7,
    mel_prenet_size=6,
    postnet_channels=6,
    postnet_layer_count=3,
    norm="layer",
    dropout=0.1,
    speaker_size=3,
    longest_text=12,
    mel=MEL,
    clips=ClipSettings(longest_s=2.0),
)
ALIGNED = msgspec.structs.replace(TINY, aligner_size=4)
"""The same, told by an aligner when each character is said."""


def voice(settings: TransformerTtsSettings = TINY, seed: int = 1) -> TransformerTts:
    network = voice_network(build_network(settings))
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=seed))
    return network.eval()


def clips(*lengths: tuple[int, int], seed: int = 0) -> SpeechExamples:
    """Return clips of so many frames and characters each."""
    draws = torch.Generator().manual_seed(seed)
    return SpeechExamples.of(
        SpeechClip(
            TINY.mel_mean + TINY.mel_std * torch.randn(frames, 5, generator=draws),
            torch.randint(1, TINY.text.symbol_count, (text,), generator=draws),
        )
        for frames, text in lengths
    )


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
