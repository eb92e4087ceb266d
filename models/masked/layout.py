"""What a masked vector holds and on which grid it lies; both ends derive it from the plan.

Before its rotation (``privacy.masking.rotation``), in units of the round's clipping norm C, so that
the grid stays while C moves::

    w_t D_t / C of every element, in schema order | ρ w_t, one a unit of weighting |
    φ (b - γ), where the clip adapts | CHECK_COUNT ones

w_t in [0, 1] is the device's weight for unit t and b is 1 if the update fitted unclipped. Every
element but the last ones is rotated with the others and gets noise of one size. The check elements
are under the mask alone: their sum is the number of contributors, or the masks did not cancel.

The count behind the clip. Noise of standard deviation σ_b on the count of those that fitted is
noise of σ_b φ on the sum of φ (b - γ). With z S' / sqrt(1 - (z s / σ_b)²) on everything, S' the
sensitivity of the other elements and s of the count, both together are a Gaussian mechanism of
multiplier z (``privacy.clipping.adaptive``): φ is that noise over σ_b.
"""

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import msgspec

from models.plan.plan import Plan, plan_schema
from models.settings.weighing import AttentiveWeights, Weighing
from models.vector.codec import PayloadHeader
from models.vector.layers import Layer, layer_clips, layers_of, whole_model
from models.vector.schema import SENT, Schema
from privacy.clipping.adaptive import fit_sensitivity
from privacy.clipping.noised_sums import sums_sensitivity, weight_scale
from privacy.masking.grid import Grid, Messages, choose_grid
from privacy.masking.keystream import SEED_BYTES
from privacy.masking.mask_form import MaskForm
from privacy.masking.packing import packed_bytes
from privacy.noise.masked_settings import MaskedNoise
from privacy.sealing.envelope import sealed_bytes

CHECK_COUNT = 4
"""Check elements: at 16 bits masks that do not cancel pass with a chance of 2^-64."""

MASKED_HEADER = PayloadHeader("a masked update", b"SOTTOMSK", 1)

# A norm is measured to 1e-6 of itself, so a message may be that much too long.
_MEASURING_MARGIN = 2.0**-16


@dataclass(frozen=True)
class MaskedLayout:
    """The layout of the vectors of one plan's rounds.

    Attributes:
        schema: The tensors that are sent.
        weighing: How a device weighs its own update.
        units: The units of weighting.
        unit_clips: What each unit's norm is weighed against, in clipping norms: 1 under a flat
            clip, else its own share.
        weight_entry: Element of a full weight: ρ.
        fit_entry: φ, the element of one client that fitted; None where the clip does not adapt.
        grid: Grid, width and noise; the same in every round.
        weights_noise_std: Noise of a sum of weights, in clients of full weight, if only those of
            whom it is believed add theirs.
    """

    schema: Schema
    weighing: Weighing
    units: tuple[Layer, ...]
    unit_clips: tuple[float, ...]
    weight_entry: float
    fit_entry: float | None
    grid: Grid
    weights_noise_std: float

    @property
    def weights(self) -> slice:
        """Return where the weights lie."""
        start = self.schema.element_count
        return slice(start, start + len(self.units))

    @property
    def noised_count(self) -> int:
        """Return how many elements get noise: all but the check elements behind them."""
        tells_fit = self.fit_entry is not None
        return self.schema.element_count + len(self.units) + tells_fit

    @property
    def element_count(self) -> int:
        """Return the length of the whole vector."""
        return self.noised_count + CHECK_COUNT

    @property
    def packed_bytes(self) -> int:
        """Return the size of the packed vector."""
        return packed_bytes(self.element_count, self.grid.bits)

    @property
    def payload_bytes(self) -> int:
        """Return the exact size of every payload: header, packed vector, sealed seed."""
        return MASKED_HEADER.SIZE + self.packed_bytes + sealed_bytes(SEED_BYTES)

    @cached_property
    def sha256(self) -> bytes:
        """Return the digest that a payload begins with: of schema, weighing and grid."""
        described = (
            self.schema.sha256.hex(),
            self.weighing,
            self.unit_clips,
            self.fit_entry,
            dataclasses.asdict(self.grid),
            CHECK_COUNT,
        )
        return hashlib.sha256(msgspec.json.encode(described, order="deterministic")).digest()


def masked_layout(plan: Plan) -> MaskedLayout:
    """Return what the masked vectors of a plan's rounds look like.

    Raises:
        ValueError: If the plan is of another mode, does not say how few may close a round, shares
            no tensor, or no width holds its noise; names the reason.
    """
    privacy, weighing = plan.privacy, plan.weighing
    if not isinstance(privacy, MaskedNoise) or isinstance(weighing, msgspec.UnsetType):
        raise ValueError(
            'a masked vector needs a plan of privacy.mode = "masked", got '
            f'"{privacy.__struct_config__.tag}"'
        )
    if plan.quorum is None:
        raise ValueError("quorum must be given in a masked plan: shares of the noise count on it")
    return layout_of_sums(
        plan_schema(plan).with_roles(*SENT),
        weighing,
        privacy,
        cohort_size=plan.cohort_size,
        quorum=plan.quorum,
    )


def layout_of_sums(
    schema: Schema, weighing: Weighing, privacy: MaskedNoise, *, cohort_size: int, quorum: int
) -> MaskedLayout:
    """Return the layout of sums of a schema's tensors, of at most ``cohort_size`` vectors each.

    Raises:
        ValueError: As ``masked_layout``.
    """
    if not schema.tensors:
        raise ValueError("a masked plan must share tensors, and this method sends none")
    units, clips = _units(schema, weighing, privacy)
    message = sums_sensitivity(clips, layer_count=len(units), adjacency="zero-out")
    message *= 1 + _MEASURING_MARGIN
    factor = 2.0 if privacy.adjacency == "replace-one" else 1.0
    fit_entry, fit_norm = None, 0.0
    if privacy.adaptation is not None:
        std = privacy.aggregate_noise_multiplier * factor * message
        fit_entry = std / privacy.adaptation.count_noise_std
        fit_norm = fit_entry * fit_sensitivity(privacy.adaptation.target_quantile)
    norm = math.hypot(message, fit_norm)
    grid = choose_grid(
        Messages(
            element_count=schema.element_count + len(units) + (fit_entry is not None),
            norm=norm,
            # Each of two messages that replace each other is as long as one.
            sensitivity=factor * norm,
            contributors=cohort_size,
            noise_multiplier=privacy.noise_multiplier,
            honest=privacy.honest_contributors(quorum),
        )
    )
    entry = weight_scale(len(units))
    return MaskedLayout(
        schema,
        weighing,
        units,
        clips if len(clips) > 1 else clips * len(units),
        entry,
        fit_entry,
        grid,
        privacy.noise_multiplier * grid.sensitivity / entry,
    )


def mask_form(plan: Plan, layout: MaskedLayout, attempt: int) -> MaskForm:
    """Return what every seed of an attempt, from 0, is bound to; ValueError as ``masked_layout``.

    A seed is bound to how few vectors the plan lets a sum have: else who may ask for sums would
    promise a thousand shares of noise, and have the helper unmask five.
    """
    privacy, quorum = plan.privacy, plan.quorum
    if not isinstance(privacy, MaskedNoise) or quorum is None:
        raise ValueError("a mask needs a plan of masked sums that has a quorum")
    return MaskForm(
        element_count=layout.element_count,
        bits=layout.grid.bits,
        attempt=attempt,
        groups=privacy.groups,
        least_contributors=privacy.least_contributors(quorum),
    )


def layout_if_masked(plan: Plan) -> MaskedLayout | None:
    """Return ``masked_layout``; None for a plan of another mode."""
    return masked_layout(plan) if isinstance(plan.privacy, MaskedNoise) else None


def _units(
    schema: Schema, weighing: Weighing, privacy: MaskedNoise
) -> tuple[tuple[Layer, ...], tuple[float, ...]]:
    """Return the units of weighting and their clips in clipping norms: one, or one each."""
    units = whole_model(schema)
    if isinstance(weighing, AttentiveWeights):
        units = layers_of(schema, weighing.grouping)
    tensor_clips = privacy.tensor_clips(len(schema.tensors))
    if tensor_clips is None:
        return units, (1.0,)
    clips = layer_clips(units, tensor_clips)
    return units, tuple(clip / privacy.clipping_norm for clip in clips)
