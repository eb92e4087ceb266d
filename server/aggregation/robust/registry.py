"""The choice of what a rule that reads by chunk does with the cohort."""

from functools import partial
from pathlib import Path
from typing import assert_never

from torch import Tensor

from models.vector.layers import layers_of
from privacy.noise.mode import Arrival
from server.aggregation.closing_workers import ClosingWorkers
from server.aggregation.measured_update import IntakeSettings
from server.aggregation.robust.by_distances import (
    Surveyed,
    Weigh,
    geometric_median_weights,
    krum_weights,
)
from server.aggregation.robust.chunked_rule import ChunkedRule
from server.aggregation.robust.coordinate_wise import (
    CoordinateWise,
    coordinate_median,
    trimmed_mean,
)
from server.aggregation.robust.plugin_rule import reduced_by_plugin
from server.aggregation.robust.reduction import Reduction
from server.aggregation.robust.trimmed_attentive import TrimmedAttentive
from server.aggregation.robust_settings import (
    GeometricMedianSettings,
    KrumSettings,
    MedianSettings,
    PluginRule,
    RobustSettings,
    TrimmedAttentiveSettings,
    TrimmedMeanSettings,
)
from server.aggregation.screening import Screen


def robust_rule(
    settings: RobustSettings,
    expected: IntakeSettings,
    *,
    folder: Path | None,
    screen: Screen | None,
    heading: Tensor | None,
    workers: ClosingWorkers | None = None,
) -> ChunkedRule:
    """Return an empty rule for one round; arguments and errors as in ``registry.build_rule``."""
    if expected.arrival is Arrival.NOISED_WITH_CLEAN_NORMS:
        raise ValueError(
            'score = "clean" is for rules that weigh by norms, and a robust rule looks at what '
            'arrives; set score = "arrived"'
        )
    reduction = _reduction(settings, expected, heading)
    return ChunkedRule(settings, reduction, expected, folder=folder, screen=screen, workers=workers)


def _reduction(
    settings: RobustSettings, expected: IntakeSettings, heading: Tensor | None
) -> Reduction:
    match settings:
        case MedianSettings():
            return CoordinateWise(coordinate_median)
        case TrimmedMeanSettings():
            return CoordinateWise(partial(trimmed_mean, trim_share=settings.trim_share))
        case TrimmedAttentiveSettings():
            layers = layers_of(expected.schema, settings.grouping)
            clips = expected.clips_of(layers, "trimmed-attentive")
            return TrimmedAttentive(settings, layers, clips, heading)
        case KrumSettings(attackers=attackers, kept=kept):
            weigh: Weigh = partial(krum_weights, attackers=attackers, kept=kept)
        case GeometricMedianSettings(smoothing=smoothing, iterations=iterations):
            weigh = partial(geometric_median_weights, smoothing=smoothing, iterations=iterations)
        case PluginRule():
            return CoordinateWise(partial(reduced_by_plugin, settings))
        case _:
            assert_never(settings)
    return Surveyed(expected.schema, weigh)
