import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.layers.attention import SelfAttention
from models.networks.attention_rollout import attention_maps, roll_out
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network
from models.networks.vit import Vit
from models.settings.image import VitSettings
from models.settings.model import schema_of

TINY = VitSettings(
    class_count=3,
    image_size=8,
    channel_count=1,
    pixel_mean=(0.5,),
    pixel_std=(0.25,),
    model_size=6,
    head_count=2,
    head_size=5,
    layer_count=2,
    feedforward_size=7,
)

FIRST = torch.tensor([[[[0.9, 0.1], [0.4, 0.6]], [[0.3, 0.7], [0.5, 0.5]]]])
SECOND = torch.tensor([[[[0.2, 0.8], [0.6, 0.4]]]])


def vit() -> Vit:
    network = build_network(TINY)
    assert isinstance(network, Vit)
    load_parameters(network, schema_of(TINY), initial_parameters(TINY, seed=1))
    return network.eval()


def images(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, 8, 8, 1), generator=generator).to(torch.uint8)


@pytest.mark.parametrize("causal", [False, True])
def test_recomputed_weights_are_those_that_attention_uses(causal: bool) -> None:
    attention = SelfAttention(6, head_count=2, head_size=5, causal=causal)
    generator = torch.Generator().manual_seed(3)
    for parameter in attention.parameters():
        parameter.data.normal_(0, 0.3, generator=generator)
    values = torch.randn(4, 7, 6, generator=generator)

    weights = attention.weights(values)

    # The last ten of each token's thirty projections are its values, five a head.
    projected = attention.to_qkv(values)[..., 20:].view(4, 7, 2, 5).transpose(1, 2)
    expected = attention.to_out((weights @ projected).transpose(1, 2).flatten(2))
    assert_close(attention(values), expected, rtol=0, atol=1e-6)
    assert_close(weights.sum(-1), torch.ones(4, 2, 7))


def test_one_block_of_two_heads_is_fused_by_its_maximum_and_each_row_adds_up() -> None:
    shares = roll_out([FIRST], dropped_share=0.0)

    # Heads fused: [[.9, .7], [.5, .6]]; with the residual, halved: [[.95, .35], [.25, .8]].
    # The class token's row over its own sum: .35 / 1.3. (By the sum of row 1: .35 / 1.05.)
    assert_close(shares, torch.tensor([[0.35 / 1.3]]))


def test_blocks_are_multiplied_from_the_first_one_up() -> None:
    shares = roll_out([FIRST, SECOND], dropped_share=0.0)

    # Second block: [[.6, .4], [.3, .7]]. First: rows [.95, .35] / 1.3 and [.25, .8] / 1.05.
    # Row 0 of second @ first, column 1. (The other way round: (.95 * .4 + .35 * .7) / 1.3.)
    assert_close(shares, torch.tensor([[0.6 * 0.35 / 1.3 + 0.4 * 0.8 / 1.05]]))


def test_the_weakest_entries_are_dropped_but_never_the_class_tokens_own() -> None:
    own_is_weakest, patch_is_weak = SECOND, torch.tensor([[[[0.6, 0.4], [0.3, 0.7]]]])

    # Three tenths of four entries is one, the class token's own .2. Dropped, it would leave
    # [.5, .4], and a share of .4 / .9.
    assert_close(roll_out([own_is_weakest], dropped_share=0.3), torch.tensor([[0.4]]))
    # Half is two: .3, and the .4 that would have reached the class token.
    assert_close(roll_out([patch_is_weak], dropped_share=0.3), torch.tensor([[0.4 / 2]]))
    assert_close(roll_out([patch_is_weak], dropped_share=0.5), torch.zeros(1, 1))


def test_what_is_dropped_is_counted_for_each_image_by_itself() -> None:
    both = torch.cat([FIRST, SECOND.expand(1, 2, 2, 2)])

    assert_close(roll_out([both])[0], roll_out([FIRST])[0])
    assert_close(roll_out([both])[1], roll_out([SECOND])[0])


def test_maps_of_images_lie_on_the_grid_of_patches() -> None:
    network = vit().train()
    pixels = images(3)

    maps = attention_maps(network, pixels)

    assert maps.shape == (3, 2, 2)
    assert bool((maps >= 0).all())
    assert bool((maps.flatten(1).sum(1) < 1).all())
    assert_close(maps[1].flatten(), roll_out(network.attentions(pixels[1:2]))[0])


def test_rollout_needs_a_block_and_a_share() -> None:
    with pytest.raises(ValueError, match="at least one block, got none"):
        roll_out([])
    with pytest.raises(ValueError, match="dropped_share must be in"):
        roll_out([FIRST], dropped_share=1.0)
