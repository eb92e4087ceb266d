"""Settings of the compression of updates: the plan's ``[compression]``. No torch, no numpy."""

import math
from typing import Literal

import msgspec

from privacy.noise.calibrated_settings import LocalNoise
from privacy.noise.settings import PrivacySettings

LEAST_BLOCK, LARGEST_BLOCK = 16, 1 << 16
LEAST_STEP = 2.0**-24
MOST_RELEASES = 16


class CompressionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form in which a device sends its update.

    ``float16``, ``random`` and ``rank`` were removed. Plans of older releases that have them can
    still be read, but no update travels in these forms (``privacy.foundation.removed_settings``).

    Attributes:
        uplink: Form of a value: ``none`` is float32; ``bfloat16`` is half of it; ``int8`` and
            ``int4`` are whole numbers of 8 and 4 bits with a scale for each block.
        block_size: Values that share a scale, for ``int8`` and ``int4``: a power of two from 16 to
            65,536. A scale takes 4 bytes.
        error_feedback: Whether the device keeps what compression took from its last update and adds
            it to the next one. Values are then rounded to the nearest, which loses least; otherwise
            at random, so that the mean over many clients is unbiased.
        entropy: ``zstd`` squeezes what is sent, without loss; needs the extra ``zstd``. The size of
            an update then follows its content, rounded up to a size that many share
            (``models.compression.entropy``); with ``none`` all updates of a plan have one size.
        keep: Which values are sent: ``all``, or the ``top`` ones by magnitude; the others arrive as
            0, and reach the coordinator later by ``error_feedback``, which must be set.
        keep_fraction: Fraction of the values that is sent with ``top``, in (0, 1).
        rank: Always absent. It stays in the digest that begins every update.
        layer_groups: Groups that the layers are divided into, at least 2: each round trains and
            sends one group in turn, and the others stay as they are
            (``models.settings.layer_groups``). Absent trains all layers.
        downlink: ``whole`` sends releases as float32; ``delta`` squeezes them, and sends only the
            change to a device that holds a recent release (needs the extra ``zstd``).
        downlink_step: Releases are multiples of it, a power of two from 2^-24 to 1 in parameter
            units, rounded at random after all noise; absent leaves them as they are. Only with
            ``delta``, which saves little without it.
        downlink_releases: How many releases back a device may start from, 1 to 16; the coordinator
            keeps and seals as many.
    """

    uplink: Literal["none", "bfloat16", "float16", "int8", "int4"]
    block_size: int = 256
    error_feedback: bool = False
    entropy: Literal["none", "zstd"] = "none"
    keep: Literal["all", "top", "random"] = "all"
    keep_fraction: float | None = None
    rank: int | None = None
    layer_groups: int | None = None
    downlink: Literal["whole", "delta"] = "whole"
    downlink_step: float | None = None
    downlink_releases: int = 4

    def __post_init__(self) -> None:
        size = self.block_size
        if not LEAST_BLOCK <= size <= LARGEST_BLOCK or size & (size - 1):
            raise ValueError(
                f"block_size must be a power of two in [{LEAST_BLOCK}, {LARGEST_BLOCK}], got "
                f"{size}: others do not divide the pieces that are compressed at once"
            )
        if self.error_feedback and not self.loses:
            raise ValueError(
                "error_feedback must be false where nothing is lost; "
                f'set uplink to "int8" or "int4", got "{self.uplink}"'
            )
        self._check_part()
        if self.layer_groups is not None and self.layer_groups < 2:
            raise ValueError(f"layer_groups must be >= 2, got {self.layer_groups}")
        self._check_downlink()

    def _check_downlink(self) -> None:
        step = self.downlink_step
        if step is not None and self.downlink == "whole":
            raise ValueError(f'downlink_step belongs to downlink = "delta", got {step}')
        if step is not None and not (is_power_of_two(step) and LEAST_STEP <= step <= 1):
            raise ValueError(f"downlink_step must be a power of two in [2^-24, 1], got {step}")
        if not 1 <= self.downlink_releases <= MOST_RELEASES:
            raise ValueError(
                f"downlink_releases must be in [1, {MOST_RELEASES}], got {self.downlink_releases}"
            )

    def _check_part(self) -> None:
        fraction = self.keep_fraction
        if (self.keep == "all") != (fraction is None):
            raise ValueError(
                'keep_fraction belongs to keep = "top"; '
                f'got keep "{self.keep}" and keep_fraction {fraction}'
            )
        if fraction is not None and not 0 < fraction < 1:
            raise ValueError(f"keep_fraction must be in (0, 1), got {fraction}")
        if self.keep != "all" and not self.error_feedback:
            raise ValueError(
                f'error_feedback must be true with keep = "{self.keep}": what is not sent would be '
                "lost for good"
            )

    @property
    def loses(self) -> bool:
        """Return whether what arrives may differ from what was to be sent."""
        return self.uplink != "none" or self.keep != "all" or self.rank is not None

    @property
    def description(self) -> str:
        """Say in which form updates travel, for logs and reports."""
        form: str = "float32" if self.uplink == "none" else self.uplink
        if self.uplink in ("int8", "int4"):
            form += f" in blocks of {self.block_size:,}"
        if self.keep_fraction is not None:
            form += f", the largest {100 * self.keep_fraction:g} %"
        if self.layer_groups is not None:
            form += f", one of {self.layer_groups} groups of layers a round"
        squeezed = ", squeezed by zstd" if self.entropy == "zstd" else ""
        releases = ""
        if self.downlink == "delta":
            told = "" if self.downlink_step is None else f" in steps of {self.downlink_step:g}"
            releases = f"; releases as what changed{told}"
        feedback = ", what is lost fed back" if self.error_feedback else ""
        return f"updates as {form}{squeezed}{feedback}{releases}"


def release_step(settings: CompressionSettings | None) -> float | None:
    """Return the step that released parameters are multiples of; None if they are not rounded."""
    return None if settings is None else settings.downlink_step


def is_power_of_two(step: float) -> bool:
    """Return whether a number is 2 to a whole power."""
    return math.isfinite(step) and step > 0 and math.frexp(step)[0] == 0.5


def check_compression(settings: CompressionSettings, privacy: PrivacySettings) -> None:
    """Check that a noise mode allows this compression.

    Rounding does not weaken a guarantee: it comes after a device's own noise, and before the
    coordinator's clip and noise. The size of an update can, since everybody on the way sees it.

    Raises:
        ValueError: If the size of an update would reveal what the noise is to hide.
    """
    hides_later = privacy.guarantees_privacy and not isinstance(privacy, LocalNoise)
    if settings.layer_groups is not None and privacy.guarantees_privacy:
        mode = privacy.__struct_config__.tag
        raise ValueError(
            f'compression.layer_groups must be absent with privacy.mode = "{mode}", got '
            f"{settings.layer_groups}: noise would fall on layers that nobody trained; freeze "
            "layers for the whole run by training.frozen instead"
        )
    if settings.entropy != "none" and hides_later:
        mode = privacy.__struct_config__.tag
        raise ValueError(
            f'compression.entropy must be "none" with privacy.mode = "{mode}", got '
            f'"{settings.entropy}": an update travels before the noise is added, and its size '
            "would tell how much somebody wrote"
        )
