import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.networks.vocoder import Vocoder
from models.settings.vocoder import VocoderSettings

SMALL = VocoderSettings(width=16, hidden_size=32, block_count=2, segment_size=2048)


def network(settings: VocoderSettings = SMALL) -> Vocoder:
    built = Vocoder(settings)
    built.initialise(torch.Generator().manual_seed(3))
    return built


def mels(frames: int, batch: int = 1) -> Tensor:
    drawn = torch.randn(batch, 80, frames, generator=torch.Generator().manual_seed(4))
    return -5 + 2 * drawn


def test_the_default_has_two_to_three_million_parameters() -> None:
    # Embedding 80 * 7 * 256 + 256, its norm 512; five blocks of 256 * 7 + 256, norm 512,
    # 256 * 768 + 768, 768 * 256 + 256 and scale 256; last norm 512, head 256 * 1026 + 1026.
    assert VocoderSettings().schema().element_count == 2_393_602


@pytest.mark.parametrize("settings", [SMALL, VocoderSettings()])
def test_the_schema_lists_what_travels(settings: VocoderSettings) -> None:
    state = Vocoder(settings).state_dict()

    assert [(spec.name, spec.shape) for spec in settings.schema().tensors] == [
        (name, tuple(entry.shape)) for name, entry in state.items()
    ]


@pytest.mark.parametrize("frames", [2, 9, 40])
def test_spectrograms_of_any_length_become_sound_of_theirs(frames: int) -> None:
    sound = network()(mels(frames, batch=3))

    assert sound.shape == (3, (frames - 1) * 256)
    assert sound.isfinite().all()


def test_amplitudes_stay_finite_whatever_is_read() -> None:
    assert network()(mels(9) * 1e4).isfinite().all()


def test_what_is_louder_by_a_factor_starts_louder_by_it() -> None:
    built = network()
    torch.nn.init.zeros_(built.head.weight)
    quiet = mels(9) - 3

    # The head's bias alone shapes the spectrum; amplitudes follow those of the channels, but for
    # those above the highest channel: 142 frequencies of a thousandth.
    assert_close(built(quiet + math.log(2)), 2 * built(quiet), rtol=0, atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 79, 9), (80, 9), (1, 80, 1)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"mel must have shape \(batch, 80, frames >= 2\)"):
        network()(torch.zeros(shape))


@pytest.mark.parametrize("size", [0, 1024, 2049])
def test_segments_must_be_whole_hops_and_longer_than_half_a_transform(size: int) -> None:
    with pytest.raises(ValueError, match="segment_size must be a multiple of hop_size 256"):
        VocoderSettings(segment_size=size)
