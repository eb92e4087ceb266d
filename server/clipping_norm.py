"""Move the clipping norm on at the close of a round, where it follows the clients' norms."""

import torch

from privacy.adaptive_clipping import fit_excess, next_clipping_norm
from privacy.clipping_settings import AdaptiveClippingSettings
from privacy.settings import PrivacySettings
from server.aggregation.rule import AggregationRule


def clipping_norm_after(
    privacy: PrivacySettings, rule: AggregationRule, *, slot_count: int, generator: torch.Generator
) -> float | None:
    """Return C of the next round; None where it does not follow the clients' norms.

    How many updates fitted is known here alone: what leaves is the norm, made from the noised
    count.

    Args:
        privacy: This round's clipping norm, and how it moves.
        rule: Has counted whose update fitted.
        slot_count: Places of the round, M.
        generator: Source of the count's uncalibrated noise.
    """
    if not isinstance(privacy, AdaptiveClippingSettings) or privacy.adaptive_clipping is None:
        return None
    adaptive, clipping_norm = privacy.adaptive_clipping, privacy.clipping_norm
    if clipping_norm is None:
        raise ValueError("adaptive_clipping needs a clipping_norm to start from, got none")
    excess = fit_excess(rule.fitting_count, rule.contribution_count, adaptive.target_quantile)
    noise = adaptive.count_noise_std * float(torch.randn(1, generator=generator))
    return next_clipping_norm(
        clipping_norm, adaptive, noised_excess=excess + noise, slot_count=slot_count
    )
