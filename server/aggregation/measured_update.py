"""Check, measure and clip each update before a rule sees it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.vector.layers import Layer, layer_clips
from models.vector.schema import Schema
from privacy.clipping.by_layer import scale_tensors, tensor_factors
from privacy.clipping.clip import UnusableUpdateError, clipping_factor, tensor_norms
from privacy.noise.mode import Arrival
from server.aggregation.screening import Screen, ScreenedError

LARGEST_EXAMPLE_COUNT = 10**9
"""Largest weight by examples: times the largest usable update it is still a float32."""

# Clean norms travel as float32: this much above the clip is rounding, more is a lie.
_NORM_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Measured:
    """One update that may be aggregated.

    Attributes:
        values: Flat float32, shape ``(elements,)``; a scaled copy if it broke a tensor's own clip.
        factor: Factor on ``values`` to respect the clipping norm; 1 for an honest client.
        tensor_norms: L2 norm of each tensor within the clip, which attention scores; that before
            noise if the client sent it.
        was_clipped: Whether the update broke its clip, as no honest one does.
        has_fitted: Whether the client says that its update fitted without being clipped.
        norm: L2 norm over all tensors as it arrived.
    """

    values: Tensor
    factor: float
    tensor_norms: tuple[float, ...]
    was_clipped: bool = False
    has_fitted: bool = False
    norm: float = 0.0


@dataclass(frozen=True)
class IntakeSettings:
    """The updates that a round expects.

    Attributes:
        slot_count: Places of the round, M; over-selection may number slots beyond it, but no more
            than M updates count.
        clipping_norm: Largest L2 norm of an update over all layers; None for no limit.
        arrival: In which state the noise mode lets updates arrive.
        tensor_clips: Largest L2 norm of each tensor, if each has its own.
        tells_fit: Whether an update ends in a 1 if it fitted without being clipped, else a 0.
    """

    schema: Schema
    slot_count: int
    clipping_norm: float | None
    arrival: Arrival
    tensor_clips: tuple[float, ...] | None = None
    tells_fit: bool = False

    def __post_init__(self) -> None:
        if self.slot_count < 1:
            raise ValueError(f"slot_count must be >= 1, got {self.slot_count}")
        if self.tells_fit and self.arrival is not Arrival.CLIPPED:
            raise ValueError(f"only clipped updates tell whether they fitted, got {self.arrival}")

    @property
    def upload_elements(self) -> int:
        """Return the length of what a client sends."""
        norms = self.arrival is Arrival.NOISED_WITH_CLEAN_NORMS
        return (
            self.schema.element_count + (len(self.schema.tensors) if norms else 0) + self.tells_fit
        )

    def clips_of(self, layers: Sequence[Layer], rule: str) -> tuple[float, ...]:
        """Return the norm each layer is weighed against: the flat clip, or the layer's own.

        Raises:
            ValueError: If nothing is clipped.
        """
        if self.clipping_norm is None:
            raise ValueError(
                f"rule {rule} needs a clipping_norm to weigh against, got none; "
                "set privacy.clipping_norm, or use another rule"
            )
        if self.tensor_clips is not None:
            return layer_clips(layers, self.tensor_clips)
        return (self.clipping_norm,) * len(layers)

    def measure(self, upload: Tensor) -> Measured:
        """Measure one upload, contiguous float32, shape ``(upload_elements,)``.

        Raises:
            UnusableUpdateError: If an element is not finite, the norm is above
                ``LARGEST_UPDATE_NORM``, or a clean norm or the fit is impossible.
        """
        values, rest = upload[: self.schema.element_count], upload[self.schema.element_count :]
        tensors = list(self.schema.slices.values())
        norms = tensor_norms(values, tensors)
        norm = math.hypot(*norms)
        if self.arrival is Arrival.NOISED_WITH_CLEAN_NORMS:
            clean = self._checked_norms(rest.double().tolist())
            return Measured(values, 1.0, clean, norm=norm)
        factors = self._factors(norms)
        scores = tuple(norm * factor for norm, factor in zip(norms, factors, strict=True))
        if self.arrival is Arrival.NOISED:
            # Noise on top of the clip is no fault: only what attention scores stays within it.
            return Measured(values, 1.0, scores, norm=norm)
        was_clipped = any(factor < 1 for factor in factors)
        has_fitted = self.tells_fit and _checked_fit(float(rest[0]))
        if self.tensor_clips is None:
            whole = factors[0] if factors else 1.0  # A method may share no tensor.
            return Measured(values, whole, scores, was_clipped, has_fitted, norm)
        scaled = scale_tensors(values, tensors, factors)
        return Measured(scaled, 1.0, scores, was_clipped, has_fitted, norm)

    def _factors(self, norms: list[float]) -> tuple[float, ...]:
        if self.tensor_clips is not None:
            return tensor_factors(norms, self.tensor_clips)
        return (clipping_factor(math.hypot(*norms), self.clipping_norm),) * len(norms)

    def _checked_norms(self, norms: list[float]) -> tuple[float, ...]:
        if self.tensor_clips is not None:
            for norm, tensor_clip in zip(norms, self.tensor_clips, strict=True):
                _check_clean_norms([norm], tensor_clip)
        _check_clean_norms(norms, self.clipping_norm)
        return tuple(norms)


class Intake:
    """The updates of one round, taken in slot order; ``slots`` are those so far, rising."""

    def __init__(
        self,
        settings: IntakeSettings,
        screen: Screen | None = None,
        *,
        under_guarantee: bool = False,
    ) -> None:
        """Start without updates; one that ``screen`` sets aside is as if it had not been asked for.

        Under a guarantee, which counts on all places of the round, it leaves an empty place.
        """
        self.settings = settings
        self._screen = screen
        self._leaves_places = under_guarantee
        self.slots: list[int] = []
        self.clipped_count = 0
        self.fitting_count = 0

    @property
    def empty_count(self) -> int:
        """Return how many of the round's places count as empty."""
        empty = self.settings.slot_count - len(self.slots)
        if self._screen is None or self._leaves_places:
            return empty
        # A spare lease may have been set aside beside a full cohort.
        return max(0, empty - len(self._screen.refused_slots))

    def take(
        self,
        slot: int,
        upload: Tensor,
        example_count: int,
        *,
        beside: Tensor | None = None,
        measured: Measured | None = None,
    ) -> Measured:
        """Measure one upload, unless that was done ahead, and note its slot.

        ``beside``, taken by others, is only screened.

        Raises:
            ValueError: If slot, upload or example count breaks its rule; nothing has changed then.
        """
        self._check_slot(slot)
        self._check_upload(slot, upload, example_count)
        try:
            if measured is None:
                measured = self.settings.measure(upload)
            if self._screen is not None:
                self._screen.check(measured.values, measured.norm, beside)
        except ScreenedError as error:
            raise ScreenedError(error.reason, f"slot {slot}: {error}") from None
        except UnusableUpdateError as error:
            raise UnusableUpdateError(f"slot {slot}: {error}") from None
        self.slots.append(slot)
        self.clipped_count += measured.was_clipped
        self.fitting_count += measured.has_fitted
        return measured

    def _check_slot(self, slot: int) -> None:
        last = self.slots[-1] if self.slots else -1
        if slot <= last:
            raise ValueError(f"slots must be >= 0 and rise: got {slot} after {last}")
        if len(self.slots) == self.settings.slot_count:
            raise ValueError(f"a round has {self.settings.slot_count} places, slot {slot} has none")

    def _check_upload(self, slot: int, upload: Tensor, example_count: int) -> None:
        shape = (self.settings.upload_elements,)
        if upload.shape != shape or upload.dtype != torch.float32 or not upload.is_contiguous():
            raise ValueError(
                f"slot {slot}: client update must be contiguous float32 of shape {shape}, "
                f"got {upload.dtype} of shape {tuple(upload.shape)}"
            )
        if not 1 <= example_count <= LARGEST_EXAMPLE_COUNT:
            raise ValueError(
                f"slot {slot}: example_count must lie in [1, {LARGEST_EXAMPLE_COUNT}], "
                f"got {example_count}"
            )


def _checked_fit(told: float) -> bool:
    if told not in (0.0, 1.0):
        # Anything else would count one client as many.
        raise UnusableUpdateError("whether an update fitted must be told as 0 or 1")
    return told == 1.0


def _check_clean_norms(norms: list[float], clipping_norm: float | None) -> None:
    limit = math.inf if clipping_norm is None else clipping_norm * (1 + _NORM_TOLERANCE)
    total = math.hypot(*norms)
    if not (math.isfinite(total) and min(norms) >= 0 and total <= limit):
        raise UnusableUpdateError(
            f"clean norms must be >= 0, finite and within the clipping norm {clipping_norm}"
        )
