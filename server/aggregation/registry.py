"""The one place where coordinator and simulation choose the aggregation rule."""

from pathlib import Path

from torch import Tensor

from models.vector.layers import layers_of, whole_model
from models.vector.schema import Schema
from privacy.clipping.noised_sums import attentive_weight as normalised_weight
from privacy.noise.mode import Arrival
from server.aggregation.closing_workers import ClosingWorkers
from server.aggregation.measured_update import IntakeSettings
from server.aggregation.noised_sums import SumsForm
from server.aggregation.robust.registry import robust_rule
from server.aggregation.rule import AggregationRule
from server.aggregation.screening import Screen
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)
from server.aggregation.weighted.attentive import AttentiveWeighing, attentive_weight
from server.aggregation.weighted.literal import LiteralWeighing
from server.aggregation.weighted.mean import MeanWeighing
from server.aggregation.weighted.weighing import Weighing
from server.aggregation.weighted.weighted_rule import WeightedRule


def build_rule(
    settings: AggregationSettings,
    schema: Schema,
    *,
    slot_count: int,
    clipping_norm: float | None,
    arrival: Arrival = Arrival.CLIPPED,
    tensor_clips: tuple[float, ...] | None = None,
    tells_fit: bool = False,
    under_guarantee: bool = False,
    folder: Path | None = None,
    screen: Screen | None = None,
    heading: Tensor | None = None,
    form: SumsForm | None = None,
    workers: ClosingWorkers | None = None,
) -> AggregationRule:
    """Return an empty rule for one round; arguments not listed are as in ``IntakeSettings``.

    With ``under_guarantee``, noise of known size covers the result. The sum and the result are then
    float64, so that rounding moves little. A round in which every place stays empty comes to zero
    instead of an error, which would tell.

    Args:
        folder: Place of the sealed updates that a rule reads again; by default a temporary folder.
        screen: Sets updates aside before they are added; None takes all that are usable.
        heading: Way of the model so far, flat float32 ``(elements,)``, for a rule that looks back.
        form: Layout of the sums that are to be noised; None for the weighted mean itself.
        workers: Share the work; None has all of it done in the caller's thread.

    Raises:
        ValueError: If the settings do not go together.
    """
    expected = IntakeSettings(
        schema, slot_count, clipping_norm, arrival, tensor_clips=tensor_clips, tells_fit=tells_fit
    )
    match settings:
        case MeanSettings():
            weighing: Weighing = MeanWeighing(settings, whole_model(schema))
        case AttentiveSettings():
            layers = layers_of(schema, settings.grouping)
            clips = expected.clips_of(layers, "attentive")
            weight_of = attentive_weight if form is None else normalised_weight
            weighing = AttentiveWeighing(settings, layers, clips, weight_of)
        case LiteralSettings():
            if settings.norm == "spectral" and arrival is Arrival.NOISED_WITH_CLEAN_NORMS:
                raise ValueError(
                    'score = "clean" sends Frobenius norms; set norm = "frobenius", got "spectral"'
                )
            layers = layers_of(schema, settings.grouping)
            weighing = LiteralWeighing(settings, layers, schema)
        case _:
            return robust_rule(
                settings, expected, folder=folder, screen=screen, heading=heading, workers=workers
            )
    return WeightedRule(
        weighing,
        expected,
        under_guarantee=under_guarantee,
        screen=screen,
        form=form,
        workers=workers,
    )
