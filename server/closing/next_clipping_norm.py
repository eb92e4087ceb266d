"""Move the clipping norm on at the close of a round, if it follows the clients' norms."""

import torch

from privacy.clipping.adaptive import fit_excess, fit_sensitivity, next_clipping_norm
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import CentralNoise
from privacy.noise.mode import CalibratedRound
from privacy.noise.secure_gaussian import Draw, add_gaussian, calibrate
from privacy.noise.settings import PrivacySettings
from server.aggregation.rule import AggregationRule


def clipping_norm_after(
    privacy: PrivacySettings,
    rule: AggregationRule,
    *,
    slot_count: int,
    generator: torch.Generator,
    calibrated: CalibratedRound | None = None,
) -> float | None:
    """Return C of the next round; None if it does not follow the clients' norms.

    The number of updates that fitted stays here; the norm is made from the noised count. Noise
    comes from ``generator`` in a mode without a guarantee, else from keys of ``calibrated``.

    Raises:
        ValueError: If mode ``central`` is not given its keys.
    """
    adaptive, clipping_norm = privacy.adaptation, privacy.clipping_norm
    if adaptive is None or clipping_norm is None:
        return None
    excess = fit_excess(rule.fitting_count, rule.contribution_count, adaptive.target_quantile)
    if isinstance(privacy, CentralNoise):
        noised = _calibrated_sum(excess, privacy, adaptive, calibrated)
    else:
        noised = excess + adaptive.count_noise_std * float(torch.randn(1, generator=generator))
    return next_clipping_norm(clipping_norm, adaptive, noised_excess=noised, slot_count=slot_count)


def _calibrated_sum(
    excess: float,
    privacy: CentralNoise,
    adaptive: AdaptiveClipping,
    calibrated: CalibratedRound | None,
) -> float:
    """Add N(0, σ_b²) from a cryptographic generator, by a key of its own."""
    if calibrated is None:
        raise ValueError("mode central needs the keys of the round's noise, got none")
    reach = fit_sensitivity(adaptive.target_quantile, privacy.adjacency)
    calibration = calibrate(
        noise_multiplier=adaptive.count_noise_std / reach, sensitivity=reach, element_count=1
    )
    exact = torch.tensor([excess], dtype=torch.float64)
    key = calibrated.keys.draw(f"round {calibrated.round_number} clipping")
    return float(add_gaussian(exact, calibration, [Draw(key)]))
