"""Refuse personalisation methods that do not go with a rule, a noise mode or a deployment.

Clipping, noise and the rule act on what travels, so a method with personal tensors goes with all.
"""

from models.settings.compression import CompressionSettings
from models.settings.personalisation import (
    FedTpSettings,
    LocalSettings,
    PersonalisationSettings,
    PFedHnSettings,
)
from models.vector.named_parts import is_statistic
from models.vector.schema import SENT, Role, Schema
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.settings import NoNoise, PaperNoise, PrivacySettings
from server.aggregation.settings import AggregationSettings, MeanSettings


def check_personalisation(
    settings: PersonalisationSettings,
    schema: Schema,
    privacy: PrivacySettings,
    aggregation: AggregationSettings,
    *,
    compression: CompressionSettings | None,
) -> None:
    """Check that a method goes with the noise mode, the rule, and how updates travel.

    Raises:
        ValueError: If it does not; names the method, the reason and the remedy.
    """
    clips_or_noises = privacy.clipping_norm is not None or not isinstance(privacy, NoNoise)
    travelling = schema.with_roles(*SENT)
    if clips_or_noises and not travelling.tensors:
        raise ValueError(
            f'method "{settings.method}" sends nothing that could be clipped or noised; '
            'set privacy.mode = "none" without a clipping_norm'
        )
    fault = (
        "which no clipping norm fits (they count batches) and noise turns into negative variances"
        if clips_or_noises
        else _fault_in_variances(aggregation, compression)
    )
    if fault:
        _check_statistics(settings, travelling, fault)
    if not schema.with_roles(Role.SHARED).tensors and not isinstance(aggregation, MeanSettings):
        raise ValueError(
            f'method "{settings.method}" shares no tensor that a rule could weigh; '
            'set aggregation.rule = "mean"'
        )
    if schema.with_roles(Role.GENERATED).tensors:
        _check_generated(settings, privacy)


def check_deployable(settings: PersonalisationSettings) -> None:
    """Check that devices can do what the method asks for, else ValueError."""
    if isinstance(settings, LocalSettings):
        raise ValueError(
            'method "local" sends nothing, so devices would need no coordinator; '
            "run it with sotto-simulate"
        )


def _fault_in_variances(
    aggregation: AggregationSettings, compression: CompressionSettings | None
) -> str:
    """Return what could make averaged variances negative; nothing if they stay averages.

    Received plus the mean of trained minus received is the mean of the trained, and so >= 0, unless
    the step is longer, the differences are inexact, or the received ones are older.
    """
    if aggregation.server_step_size > 1:
        return (
            "which aggregation.server_step_size above 1 carries beyond the clients' own, to "
            "negative variances"
        )
    if compression is not None and compression.loses:
        return "which a compression that loses something turns into negative variances"
    return ""


def _check_statistics(settings: PersonalisationSettings, travelling: Schema, fault: str) -> None:
    statistics = [spec.name for spec in travelling.tensors if is_statistic(spec.name)]
    if statistics:
        raise ValueError(
            f'method "{settings.method}" sends running statistics such as {statistics[0]}, '
            f'{fault}; set method = "fedbn", or a model without batch norm (model.batch_norm = '
            'false, for a voice model.norm = "layer")'
        )


def _check_generated(settings: PersonalisationSettings, privacy: PrivacySettings) -> None:
    if isinstance(privacy, TreeNoise):
        raise ValueError(
            f'privacy.mode = "ftrl" covers sums of shared tensors only, and method '
            f'"{settings.method}" generates tensors; set privacy.mode = "central"'
        )
    if isinstance(privacy, CentralNoise) and _client_gradient_norm(settings) is None:
        raise ValueError(
            f'method "{settings.method}" under privacy.mode = "central" needs '
            "personalisation.hypernetwork.client_gradient_norm: clipping updates does not bound "
            "what they teach the hypernetwork"
        )
    if isinstance(privacy, PaperNoise) and privacy.score == "clean":
        raise ValueError(
            f'privacy.score = "clean" knows no generated tensors, got method "{settings.method}"; '
            'set score = "arrived"'
        )


def _client_gradient_norm(settings: PersonalisationSettings) -> float | None:
    if not isinstance(settings, FedTpSettings | PFedHnSettings):
        raise TypeError(f'method "{settings.method}" has no hypernetwork')
    return settings.hypernetwork.client_gradient_norm
