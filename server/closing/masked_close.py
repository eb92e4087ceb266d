"""Close a round of which only sums were unmasked.

The rest of ``server.closing.close``, for updates that nobody opened: they were clipped, weighed and
noised on the devices. With groups each group's noised mean is one update; a robust rule runs over
them, any other takes their mean. All of it is post-processing of the noised sums.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.masked.layout import MaskedLayout
from models.settings.weighing import AttentiveWeights, EqualWeights
from privacy.clipping.adaptive import next_clipping_norm
from privacy.clipping.noised_sums import least_weight
from privacy.masking.grid import from_grid
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.mode import Arrival
from server.aggregation.noised_sums import LEAST_FILLED, SumsForm
from server.aggregation.registry import build_rule
from server.aggregation.robust_settings import RobustSettings
from server.closing.checks import check_parameters
from server.closing.close import Closed, Closing, heading_of, next_parameters
from server.closing.masked_totals import UnmaskedSum


class MasksDoNotCancelError(ValueError):
    """Raised when an unmasked sum is no sum of the vectors that came: nobody can say whose fault it
    is, and the attempt is tried again."""


def close_masked(
    parameters: Tensor, groups: Sequence[UnmaskedSum], layout: MaskedLayout, closing: Closing
) -> Closed:
    """Divide the noised sums, and step.

    Args:
        parameters: As in ``server.closing.close.close_round``.
        groups: One sum for each of ``privacy.groups``, in the order of the groups.
        layout: The plan's ``models.masked.layout.masked_layout``.
        closing: The terms; ``privacy`` has the round's clipping norm. Its noise keys, screen and
            personalisation are not asked.

    Raises:
        MasksDoNotCancelError: If check elements are wrong; nothing was learnt then.
        ValueError: If the number of groups is another, or the result is not finite.
    """
    privacy = closing.privacy
    if not isinstance(privacy, MaskedNoise):
        raise TypeError(f"mode masked must close masked sums, got {type(privacy).__name__}")
    if len(groups) != privacy.groups:
        raise ValueError(f"groups must be {privacy.groups} sums, got {len(groups)}")
    check_parameters(parameters, closing.released)
    for group in groups:
        _check_sum(group, layout)
    form = _form(layout, math.ceil(closing.slot_count / len(groups)))
    excess, updates = 0.0, []
    for group in groups:
        sums = torch.from_numpy(from_grid(group.total[: layout.noised_count], layout.grid))
        if layout.fit_entry is not None:
            excess += float(sums[-1]) / layout.fit_entry
        sums = sums[: form.length]
        updates.append(form.divided(sums, form.totals(sums)).mul_(privacy.clipping_norm))
    return Closed(
        next_parameters(parameters, _between(updates, parameters, closing), closing),
        sum(group.contributor_count for group in groups),
        # Nobody can see whether an update broke its clip.
        None,
        None,
        _next_norm(privacy, excess, closing.slot_count),
    )


def _check_sum(group: UnmaskedSum, layout: MaskedLayout) -> None:
    if group.total.shape != (layout.element_count,) or group.total.dtype != np.uint32:
        raise ValueError(
            f"a sum must be uint32 of shape ({layout.element_count},), "
            f"got {group.total.dtype} of shape {group.total.shape}"
        )
    expected = group.contributor_count % (1 << layout.grid.bits)
    if (group.total[layout.noised_count :] != expected).any():
        raise MasksDoNotCancelError(
            "the check elements of an unmasked sum must be the number of its contributors: the "
            "masks did not cancel, or a vector was no masked update"
        )


def _form(layout: MaskedLayout, slot_count: int) -> SumsForm:
    """Return how the noised sums of a group of ``slot_count`` places divide, in clipping norms."""
    match layout.weighing:
        case AttentiveWeights(attention_strength=strength):
            least = LEAST_FILLED * slot_count * least_weight(strength)
        case EqualWeights():
            least = LEAST_FILLED * slot_count
        case _:
            # Nobody needs to have examples. So little weight cannot be told from its noise.
            least = layout.weights_noise_std
    return SumsForm(layout.units, layout.schema.element_count, layout.weight_entry, least)


def _between(updates: list[Tensor], parameters: Tensor, closing: Closing) -> Tensor:
    """Return one update of those of the groups."""
    if not isinstance(closing.aggregation, RobustSettings):
        total = updates[0]
        for update in updates[1:]:
            total.add_(update)
        return total.div_(len(updates))
    rule = build_rule(
        closing.aggregation,
        closing.shared,
        slot_count=len(updates),
        clipping_norm=closing.privacy.clipping_norm,
        # The noise of a group is no fault, and is on top of the clip.
        arrival=Arrival.NOISED,
        tensor_clips=closing.privacy.tensor_clips(len(closing.shared.tensors)),
        folder=closing.spool_folder,
        heading=heading_of(parameters, closing),
    )
    for group, update in enumerate(updates):
        rule.add(group, update.float(), 1)
    return rule.result()


def _next_norm(privacy: MaskedNoise, excess: float, slot_count: int) -> float | None:
    """Return C of the next round; ``excess`` is the noised sum of (b - γ), in clients."""
    if privacy.adaptation is None:
        return None
    return next_clipping_norm(
        privacy.clipping_norm, privacy.adaptation, noised_excess=excess, slot_count=slot_count
    )
