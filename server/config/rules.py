"""The rules that a federation's settings obey together, each with its own refusal."""

from collections.abc import Callable, Iterator

from models.plan.frozen import check_frozen
from models.plan.roles import check_local_epochs, check_task
from models.plan.word_rules import check_words
from models.settings.compression import check_compression
from models.settings.growing_layers import check_growth
from models.settings.layer_groups import check_layer_groups
from models.settings.masked_sums import check_masked
from models.settings.model import schema_of
from models.vector.schema import RELEASED, SENT, Role, Schema
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.masked_settings import MaskedNoise
from server.aggregation.robust_settings import RobustSettings
from server.aggregation.screening_settings import check_screening
from server.aggregation.settings import AttentiveSettings
from server.config.evaluation_rules import check_evaluation
from server.config.fitting import check_fitting
from server.config.guarantee_rules import check_guarantee
from server.config.masked_rules import check_masked_sums
from server.config.personalisation_rules import check_personalisation
from server.config.plugin_rules import check_named_plugins
from server.config.robust_rules import check_look_back, check_robust
from server.config.settings import FederationSettings

Rule = Callable[[FederationSettings], object]
"""Raise ValueError, naming value, rule and remedy, if the settings break the rule."""


def _check_seed(config: FederationSettings) -> None:
    if not 0 <= config.seed < 2**63:
        raise ValueError(f"seed must be in [0, 2^63), got {config.seed}")


def _check_compression(config: FederationSettings) -> None:
    if config.compression is None:
        return
    check_compression(config.compression, config.privacy)
    check_layer_groups(
        config.compression,
        config.schema_at(None if config.growth is None else 1).with_roles(*SENT),
        personalisation=config.personalisation,
        privacy=config.privacy,
        keeps_optimiser=config.training.optimiser_state == "kept",
        hides_examples=config.training.example_privacy is not None,
    )
    if config.compression.layer_groups is not None and config.screening.norm_factor is not None:
        raise ValueError(
            "screening.norm_factor must be absent with compression.layer_groups: groups of "
            "layers differ in length, and the longest would be set aside"
        )


def _check_personalisation(config: FederationSettings) -> None:
    check_personalisation(
        config.personalisation,
        config.schema,
        config.privacy,
        config.aggregation,
        compression=config.compression,
    )


def _check_words(config: FederationSettings) -> None:
    words = config.vocabulary
    check_words(config.task, config.model, None if words is None else words.size)


def check_public_text(config: FederationSettings) -> None:
    """Refuse a public text where there are no words, or no model that everyone has."""
    if config.evaluation.public_text is None:
        return
    if config.vocabulary is None:
        raise ValueError(
            f'evaluation.kind = "public" scores words, but task "{config.task}" has none; '
            'use "devices" or "none"'
        )
    if any(spec.role not in RELEASED for spec in config.schema.tensors):
        raise ValueError(
            'evaluation.kind = "public" scores one model for everyone, which nobody has under '
            f'personalisation.method = "{config.personalisation.method}"; use "devices" or "none"'
        )


def _check_attention(config: FederationSettings) -> None:
    if isinstance(config.aggregation, AttentiveSettings) and config.privacy.clipping_norm is None:
        raise ValueError(
            'aggregation.rule = "attentive" weighs against the clipping norm; '
            'set privacy.clipping_norm, or use rule = "literal"'
        )


def _check_masked(config: FederationSettings) -> None:
    if isinstance(config.privacy, MaskedNoise):
        check_masked(
            config.personalisation,
            config.compression,
            hides_examples=config.training.example_privacy is not None,
        )
        check_masked_sums(
            config.privacy,
            config.aggregation,
            config.rounds,
            example_cap=config.training.example_cap,
        )


def _check_robust(config: FederationSettings) -> None:
    if isinstance(config.aggregation, RobustSettings):
        quorum = config.rounds.quorum
        if isinstance(config.privacy, MaskedNoise):
            quorum = config.privacy.groups  # Each of their sums is one update to the rule.
        check_robust(config.aggregation, config.schema, config.privacy, quorum=quorum)


def _check_guarantee(config: FederationSettings) -> None:
    for staged in _schemas_of_stages(config):
        shared = staged.with_roles(Role.SHARED)
        check_guarantee(shared, config.privacy, config.aggregation, config.rounds)


def _schemas_of_stages(config: FederationSettings) -> Iterator[Schema]:
    growth = config.growth
    if growth is None:
        yield config.schema
        return
    check_growth(config.model, growth)
    if isinstance(config.privacy, TreeNoise):
        raise ValueError(
            'growth must be absent with privacy.mode = "ftrl": its noise is of one '
            'dimension from the first round on; set privacy.mode = "central"'
        )
    if config.privacy.layer_ratios:
        raise ValueError(
            "privacy.layer_ratios must be empty with growth: they are one a tensor, and every "
            "stage has more; without them the clip is shared out alike"
        )
    for stage in range(1, growth.stage_count + 1):
        yield config.schema_at(stage)


def _check_evaluation(config: FederationSettings) -> None:
    hides_examples = config.training.example_privacy is not None
    check_evaluation(
        config.evaluation, config.rounds, config.privacy, hides_examples=hides_examples
    )


def _check_fitting(config: FederationSettings) -> None:
    if config.fitting is not None:
        check_fitting(config.fitting, config.personalisation, config.schema, config.privacy)


def _check_convergence(config: FederationSettings) -> None:
    if config.convergence is not None and config.evaluation.kind == "none":
        raise ValueError(
            "convergence needs a figure to follow; set evaluation.kind, or remove convergence"
        )


def _check_helper(config: FederationSettings) -> None:
    if config.helper is not None and not isinstance(config.privacy, MaskedNoise):
        raise ValueError(
            "helper must be absent without masks, for nobody would ask it; set privacy.mode = "
            '"masked"'
        )


RULES: tuple[Rule, ...] = (
    check_named_plugins,
    _check_seed,
    lambda config: config.privacy.tensor_clips(len(config.schema.with_roles(*SENT).tensors)),
    _check_compression,
    lambda config: check_task(config.personalisation, config.task),
    lambda config: check_local_epochs(config.personalisation, config.training.local_epochs),
    lambda config: check_frozen(
        config.personalisation, schema_of(config.model), config.training.frozen
    ),
    _check_personalisation,
    _check_words,
    check_public_text,
    _check_attention,
    _check_masked,
    lambda config: check_screening(config.screening, config.privacy),
    _check_robust,
    lambda config: check_look_back(config.aggregation, config.store),
    _check_guarantee,
    _check_evaluation,
    _check_fitting,
    _check_convergence,
    _check_helper,
)
"""Every rule, in the order in which refusals are told."""
