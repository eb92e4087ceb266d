"""Close a simulated round of masked sums.

There is one process and no second party, so there are no masks: they would cancel. Vectors are made
by the device's code, summed modulo 2^bits and closed by the coordinator's code, so the bits are
those of a deployment that drew the same noise.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from models.masked.layout import MaskedLayout
from privacy.noise.masked_settings import MaskedNoise
from server.closing.close import Closed, Closing
from server.closing.masked_close import close_masked
from server.closing.masked_totals import MaskedTotals
from server.closing.summing import Contribution


class GroupTooSmallError(Exception):
    """Raised when a group has fewer vectors than may be unmasked."""


def close_without_masks(
    parameters: Tensor,
    contributions: Iterable[Contribution],
    layout: MaskedLayout,
    closing: Closing,
    *,
    quorum: int,
) -> Closed:
    """Sum what the cohort sends and close; arguments as in ``server.closing.close``.

    ``Contribution.update`` is int32 seen as float32, as ``simulation.workers.jobs.Trained`` has it.

    Raises:
        GroupTooSmallError: If a group has too few for its sum to be unmasked.
    """
    privacy = closing.privacy
    if not isinstance(privacy, MaskedNoise):
        raise TypeError(f"mode masked must close masked sums, got {type(privacy).__name__}")
    totals = MaskedTotals(layout, privacy.groups)
    for contribution in contributions:
        vector = contribution.update.view(torch.int32).numpy().view(np.uint32)
        totals.add(contribution.slot, vector)
    if min(totals.contributor_counts) < privacy.least_contributors(quorum):
        raise GroupTooSmallError
    return close_masked(parameters, totals.unmasked(), layout, closing)
