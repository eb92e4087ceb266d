"""Settings of clipping, which every noise mode has. No torch here.

The clipping norm C always bounds the whole update. ``flat`` scales an update as one vector;
``per-layer`` gives each tensor its own share C_l, with C² = Σ C_l², so that one large tensor cannot
use up the room of the others ([McMahan], section 2). Norms are those of effective parameters: a
layer that trains at another scale is rescaled before.

References:
    [McMahan] McMahan et al., "Learning Differentially Private Recurrent Language Models",
        ICLR 2018, arXiv:1710.06963.
    [Andrew] Andrew et al., "Differentially Private Learning with Adaptive Clipping",
        NeurIPS 2021, arXiv:1905.03871.
"""

import math
from typing import Literal

import msgspec


class AdaptiveClipping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the clipping norm follows a quantile of the clients' update norms ([Andrew]).

    ``clipping_norm`` is then where the first round starts.

    Attributes:
        target_quantile: γ, the share of clients whose update should fit in, in (0, 1).
        step: η; after a round C is multiplied by e^(-η (b - γ)), b the share that did fit.
        count_noise_std: σ_b, standard deviation of the noise on the count of those, in clients.
            A twentieth of the cohort costs the aggregate little ([Andrew]).
        largest: Upper bound of C; a device's floor may refuse more.
    """

    target_quantile: float = 0.5
    step: float = 0.2
    count_noise_std: float
    largest: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.target_quantile < 1:
            raise ValueError(f"target_quantile must lie in (0, 1), got {self.target_quantile}")
        if not 0 < self.step < math.inf:
            raise ValueError(f"step must be > 0 and finite, got {self.step}")
        if not 0 <= self.count_noise_std < math.inf:
            raise ValueError(f"count_noise_std must be >= 0 and finite, got {self.count_noise_std}")
        if self.largest is not None and not 0 < self.largest < math.inf:
            raise ValueError(f"largest must be > 0 and finite, got {self.largest}")


class ClippingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How updates are clipped.

    Attributes:
        clipping_norm: C, largest L2 norm of a client update over all layers together, in
            parameter units; absent means that updates are not clipped.
        clipping: ``flat``, or ``per-layer``: every tensor by itself.
        layer_ratios: For ``per-layer``, how C is shared out, one number a tensor in schema order:
            C_l = C r_l / |r|. Empty shares it alike: C / sqrt(L).
    """

    clipping_norm: float | None = None
    clipping: Literal["flat", "per-layer"] = "flat"
    layer_ratios: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.clipping_norm is not None and not 0 < self.clipping_norm < math.inf:
            raise ValueError(f"clipping_norm must be > 0 and finite, got {self.clipping_norm}")
        if self.clipping == "per-layer" and self.clipping_norm is None:
            raise ValueError('clipping = "per-layer" shares out a clipping_norm, got none')
        if self.layer_ratios and self.clipping == "flat":
            raise ValueError('layer_ratios needs clipping = "per-layer", got "flat"')
        for ratio in self.layer_ratios:
            if not 0 < ratio < math.inf:
                raise ValueError(f"layer_ratios must be > 0 and finite, got {ratio}")
        if self.adaptation is not None:
            self._check_start(self.adaptation)

    def _check_start(self, adaptive: AdaptiveClipping) -> None:
        if self.clipping_norm is None:
            raise ValueError("adaptive_clipping needs a clipping_norm to start from, got none")
        if adaptive.largest is not None and self.clipping_norm > adaptive.largest:
            raise ValueError(
                f"clipping_norm must be <= adaptive_clipping.largest {adaptive.largest}, "
                f"got {self.clipping_norm}"
            )

    @property
    def adaptation(self) -> AdaptiveClipping | None:
        """Return how the clipping norm follows the clients' norms; None where it stays."""
        return None

    @property
    def tells_fit(self) -> bool:
        """Return whether a client tells, sealed with its update, if it fitted unclipped."""
        return self.adaptation is not None

    def tensor_clips(self, tensor_count: int) -> tuple[float, ...] | None:
        """Return each tensor's own clipping norm, or None; ValueError unless one ratio each."""
        if self.clipping_norm is None or self.clipping == "flat":
            return None
        ratios = self.layer_ratios or (1.0,) * tensor_count
        if len(ratios) != tensor_count:
            raise ValueError(
                f"layer_ratios must be one a tensor, {tensor_count} for this model, "
                f"got {len(ratios)}"
            )
        length = math.hypot(*ratios)
        return tuple(self.clipping_norm * (ratio / length) for ratio in ratios)


class AdaptiveClippingSettings(ClippingSettings, frozen=True, kw_only=True):
    """How updates are clipped where the norm may also follow the clients'.

    Attributes:
        adaptive_clipping: How it follows; absent keeps ``clipping_norm`` for the whole run.
    """

    adaptive_clipping: AdaptiveClipping | None = None

    @property
    def adaptation(self) -> AdaptiveClipping | None:
        """Return how the clipping norm follows the clients' norms; None where it stays."""
        return self.adaptive_clipping
