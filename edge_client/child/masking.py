"""Mask what a device sends: a fresh seed's keystream over the vector, and the seed for the helper.

A seed masks one vector and nothing else. A sealed update is sent again as it is after any
interruption; a device that has to train again draws its noise and its seed anew.
"""

import numpy as np
from numpy.typing import NDArray

from models.masked.layout import mask_form, masked_layout
from models.masked.payload import encode_payload
from models.plan.plan import Plan
from privacy.identities.certificates import CertifiedKey
from privacy.identities.party import Identity
from privacy.masking.keystream import add_keystream
from privacy.masking.packing import pack
from privacy.masking.sealed_seed import new_seed, seal_seed, seed_context
from privacy.sealing.envelope import MessageContext


def masked_payload(
    plan: Plan,
    vector: NDArray[np.int32],
    update: MessageContext,
    *,
    attempt: int,
    device: Identity,
    helper: CertifiedKey,
) -> memoryview:
    """Return the payload of a masked update.

    Args:
        vector: What ``edge_client.training.masked_update`` made, int32, shape
            ``(layout.element_count,)``.
        update: What the update is bound to; the seed is bound to the same.
        attempt: Attempt at the round, from 0.
        helper: The helper's wrapping key, checked and pinned.

    Raises:
        CodecError: If the vector does not fit the plan's layout.
        ValueError: If the plan masks nothing.
    """
    layout = masked_layout(plan)
    form = mask_form(plan, layout, attempt)
    seed = new_seed()
    # Two's complement: a negative element wraps as the sum does.
    masked = vector.astype(np.uint32)
    add_keystream(masked, seed, bits=layout.grid.bits)
    sealed = seal_seed(seed, seed_context(update, form), device=device, helper=helper)
    return encode_payload(layout, pack(masked, layout.grid.bits), sealed)
