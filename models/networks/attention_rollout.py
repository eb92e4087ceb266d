"""Show which parts of an image a ViT's class token takes in, by attention rollout.

Attention of one block says where a token looks, but that token was already mixed by the blocks
before. Rollout multiplies the blocks' attentions, each with the residual beside it, from the first
block up, and reads off what reaches the class token.

FedTP fuses heads by their maximum and drops the weakest three tenths of the entries. The published
tool that its figures follow divides A[i, j] by the sum of row j, after which a token's shares do
not add up to 1; here every row is divided by its own sum. That tool's default drops nine tenths.

References:
    [Rollout] Abnar and Zuidema, ACL 2020, arXiv:2005.00928, section 3.
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section IV-C.5.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.networks.vit import Vit

DROPPED_SHARE = 0.3
"""Share of a block's entries, the weakest ones, that [FedTP] leaves out."""


@torch.no_grad()
def attention_maps(network: Vit, pixels: Tensor, *, dropped_share: float = DROPPED_SHARE) -> Tensor:
    """Return each patch's share of an image's class token, float32, ``(batch, rows, columns)``.

    Shares that are missing to 1 are the class token's own. ``pixels`` are uint8, shape ``(batch,
    height, width, channels)``; the network is left in evaluation mode.
    """
    shares = roll_out(network.eval().attentions(pixels), dropped_share=dropped_share)
    size = network.pixels.shape[0] // network.patch_size
    return shares.view(len(pixels), size, size)


def roll_out(attentions: Sequence[Tensor], *, dropped_share: float = DROPPED_SHARE) -> Tensor:
    """Multiply attentions up to the last block; return the class token's row over patches.

    Args:
        attentions: One a block, the first one first: ``(batch, heads, tokens, tokens)``, rows
            adding up to 1; token 0 is the class token.
        dropped_share: Share of the entries, in [0, 1), that is set to zero after heads are fused:
            the weakest, but never what the class token takes from itself.
    """
    if not attentions:
        raise ValueError("rollout needs the attention of at least one block, got none")
    if not 0 <= dropped_share < 1:
        raise ValueError(f"dropped_share must be in [0, 1), got {dropped_share}")
    product = torch.eye(attentions[0].shape[-1], device=attentions[0].device)
    for attention in attentions:
        product = _flow(attention.amax(dim=1), dropped_share) @ product
    return product[:, 0, 1:]


def _flow(fused: Tensor, dropped_share: float) -> Tensor:
    """Return a block's attention without its weakest entries and with the residual, rows to 1."""
    entries = fused.flatten(1)
    # A stable sort: entries alike are dropped in a fixed order.
    weakest = entries.argsort(dim=1, stable=True)[:, : int(dropped_share * entries.shape[1])]
    kept = entries.scatter(1, weakest, 0.0)
    kept[:, 0] = entries[:, 0]
    mixed = (kept.view_as(fused) + torch.eye(fused.shape[-1], device=fused.device)) / 2
    return mixed / mixed.sum(dim=-1, keepdim=True)
