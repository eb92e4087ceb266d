"""From devices' updates to the next parameters under masks, against the other ways to get there."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.testing import assert_close

from edge_client.training.masked_update import masked_vector
from models.masked.layout import MaskedLayout, masked_layout
from models.plan.plan import Plan
from models.settings.weighing import AttentiveWeights, ExampleWeights
from privacy.clipping.by_layer import clip_update
from privacy.masking.grid import from_grid
from privacy.noise.calibrated_settings import CentralNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.settings import PrivacySettings
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.closing.close import Closed, Closing, close_round
from server.closing.masked_close import close_masked
from server.closing.masked_totals import MaskedTotals
from server.closing.summing import Contribution
from simulation.rounds.masked_round import GroupTooSmallError, close_without_masks
from tests.masked_scene import RepeatedKeys, masked_noise, masked_plan

CLIP = 2.0
EQUAL = MeanSettings(weighting="equal")


def device_vector(
    layout: MaskedLayout, update: Tensor, privacy: MaskedNoise, slot: int, share: float = 1.0
) -> NDArray[np.int32]:
    tensors = list(layout.schema.slices.values())
    return masked_vector(
        layout,
        clip_update(update, privacy, tensors),
        privacy,
        example_share=share,
        keys=RepeatedKeys(),
        label=f"round 1 client {slot}",
    )


def closed_under_masks(
    plan: Plan,
    updates: Sequence[Tensor],
    *,
    aggregation: AggregationSettings = EQUAL,
    shares: Sequence[float] | None = None,
    order: Sequence[int] | None = None,
) -> Closed:
    privacy, layout = plan.privacy, masked_layout(plan)
    assert isinstance(privacy, MaskedNoise)
    totals = MaskedTotals(layout, privacy.groups)
    for slot in order or range(len(updates)):
        share = 1.0 if shares is None else shares[slot]
        vector = device_vector(layout, updates[slot], privacy, slot, share)
        totals.add(slot, vector.view(np.uint32))
    terms = closing(layout, privacy, aggregation, len(updates))
    return close_masked(torch.zeros(layout.schema.element_count), totals.unmasked(), layout, terms)


def closing(
    layout: MaskedLayout,
    privacy: PrivacySettings,
    aggregation: AggregationSettings,
    slot_count: int,
) -> Closing:
    return Closing(
        schema=layout.schema,
        aggregation=aggregation,
        privacy=privacy,
        slot_count=slot_count,
        generator=torch.Generator(),
        round_number=1,
    )


def random_updates(plan: Plan, count: int) -> list[Tensor]:
    """Return updates of which about half are longer than the clip."""
    generator = torch.Generator().manual_seed(5)
    size = masked_layout(plan).schema.element_count
    lengths = torch.linspace(0.2 * CLIP, 1.8 * CLIP, count)
    drawn = torch.randn(count, size, generator=generator)
    return list(drawn / drawn.norm(dim=1, keepdim=True) * lengths[:, None])


def quiet(**changes: object) -> MaskedNoise:
    return masked_noise(clipping_norm=CLIP, noise_multiplier=1e-4, **changes)


@pytest.mark.parametrize("clipping", ["flat", "per-layer"])
@pytest.mark.parametrize(
    ("strength", "grouping"), [(0.0, "tensor"), (0.5, "tensor"), (3.0, "layer"), (-1.0, "layer")]
)
def test_a_masked_round_ends_where_the_coordinator_would_by_noising_sums_itself(
    strength: float, grouping: str, clipping: str
) -> None:
    settings = {"attention_strength": strength, "grouping": grouping}
    plan = masked_plan(
        privacy=quiet(clipping=clipping),
        weighing=AttentiveWeights(**settings),  # type: ignore[arg-type]  # a literal, as text
        hidden_size=4,
        cohort_size=6,
        quorum=6,
    )
    updates, aggregation = random_updates(plan, 6), AttentiveSettings(**settings)  # type: ignore[arg-type]
    layout = masked_layout(plan)

    masked = closed_under_masks(plan, updates, aggregation=aggregation)

    central = CentralNoise(
        clipping_norm=CLIP,
        clipping=clipping,  # type: ignore[arg-type]  # a literal, as text
        noise_multiplier=1e-9,
        delta=1e-6,
        epsilon_budget=8.0,
        adjacency="zero-out",
        noise_on="sums",
    )
    plain = close_round(
        torch.zeros(layout.schema.element_count),
        [Contribution(slot, update, 1) for slot, update in enumerate(updates)],
        closing(layout, central, aggregation, 6),
    )
    # Noise of 1e-4 S on sums of six, e^-3 each at the least, and twelve times the step of sums.
    assert_close(masked.parameters, plain.parameters, rtol=0, atol=4e-3)
    assert float(plain.parameters.norm()) > 0.1


def test_a_capped_count_weighs_as_in_the_mean_by_examples() -> None:
    plan = masked_plan(privacy=quiet(), weighing=ExampleWeights(), cohort_size=3)
    updates = random_updates(plan, 3)

    closed = closed_under_masks(plan, updates, shares=(0.25, 2.0, 0.5))

    clipped = [clip_update(update, quiet(), [slice(0, len(update))]).values for update in updates]
    weights = (0.25, 1.0, 0.5)
    mean = sum(w * u for w, u in zip(weights, clipped, strict=True)) / sum(weights)
    assert_close(closed.parameters, mean, rtol=0, atol=2e-3)


def test_no_order_of_contributions_changes_a_bit() -> None:
    plan = masked_plan(privacy=masked_noise(groups=2), cohort_size=5, quorum=4)
    updates = random_updates(plan, 5)

    first, second = (
        closed_under_masks(plan, updates, order=order) for order in (range(5), (3, 0, 4, 2, 1))
    )

    assert torch.equal(first.parameters, second.parameters)


@pytest.mark.parametrize(("multiplier", "honest"), [(0.5, 1.0), (1.0, 1.0), (2.0, 0.5)])
def test_the_released_step_has_the_noise_of_all_shares_that_were_added(
    multiplier: float, honest: float
) -> None:
    privacy = masked_noise(noise_multiplier=multiplier, honest_share=honest, clipping_norm=CLIP)
    plan = masked_plan(privacy=privacy, hidden_size=40, cohort_size=100, quorum=100)
    size = masked_layout(plan).schema.element_count

    closed = closed_under_masks(plan, [torch.zeros(size)] * 100)

    # z S / W, S = C sqrt(1.1) and W = 100 to within its own noise, times sqrt(1 / honest share)
    # since all add. The estimate's own standard deviation is 0.7 %, W's 3.3 z / 100 at most.
    expected = multiplier * CLIP * math.sqrt(1.1) / 100 / math.sqrt(honest)
    weight = 3.4 * multiplier / math.sqrt(honest) / 100
    assert float(closed.parameters.std()) == pytest.approx(expected, rel=0.035 + 4 * weight)


def test_a_device_that_adds_half_its_share_leaves_as_much_less_noise_as_that() -> None:
    privacy = masked_noise(clipping_norm=CLIP)
    plan = masked_plan(privacy=privacy, hidden_size=40, cohort_size=2, quorum=2)
    layout = masked_layout(plan)
    stingy = dataclasses.replace(
        layout, grid=dataclasses.replace(layout.grid, share_std=layout.grid.share_std / 2)
    )
    zeros = torch.zeros(layout.schema.element_count)

    def noise_of(*devices: MaskedLayout) -> float:
        vectors = [
            device_vector(own, zeros, privacy, slot)[: layout.noised_count]
            for slot, own in enumerate(devices)
        ]
        total = np.stack(vectors).sum(axis=0, dtype=np.int64).astype(np.uint32)
        sums = from_grid(total, layout.grid)
        return float(sums[: layout.schema.element_count].std())

    # z S in clipping norms, and of its variance one half and an eighth; to five deviations of
    # the estimate, which has 0.7 % of its own.
    assert noise_of(layout, layout) == pytest.approx(math.sqrt(1.1), rel=0.04)
    assert noise_of(layout, stingy) == pytest.approx(math.sqrt(1.1 * 0.625), rel=0.04)


def test_a_group_with_too_few_is_not_summed() -> None:
    privacy = masked_noise(groups=2, clipping_norm=CLIP)
    plan = masked_plan(privacy=privacy, cohort_size=4, quorum=3)
    layout = masked_layout(plan)
    updates = random_updates(plan, 3)
    # Slots 0 and 2 are one group; nobody of the other came.
    sent = [
        Contribution(slot, torch.from_numpy(device_vector(layout, updates[slot], privacy, slot)), 1)
        for slot in (0, 2)
    ]

    with pytest.raises(GroupTooSmallError):
        close_without_masks(
            torch.zeros(layout.schema.element_count),
            sent,
            layout,
            closing(layout, privacy, EQUAL, 4),
            quorum=3,
        )
