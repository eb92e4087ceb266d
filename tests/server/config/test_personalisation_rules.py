"""Which methods go with which rules, noise modes and deployments."""

import pytest

from models.plan.roles import assign_roles
from models.settings.compression import CompressionSettings
from models.settings.hypernetwork import HypernetworkSettings
from models.settings.model import GruLmSettings, TransformerLmSettings, schema_of
from models.settings.personalisation import (
    FedBnSettings,
    FedPerSettings,
    FedTpSettings,
    GlobalSettings,
    LocalSettings,
    PersonalisationSettings,
    PFedHnSettings,
    VanillaSettings,
)
from models.vector.schema import Schema, TensorSpec
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.settings import NoNoise, PaperNoise, PrivacySettings
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.config.personalisation_rules import check_deployable, check_personalisation

UNTIED = schema_of(GruLmSettings(vocabulary_size=10, hidden_size=2, tied=False))
TRANSFORMER = schema_of(TransformerLmSettings(vocabulary_size=10, model_size=8))
WITH_NORM = Schema(
    tuple(
        TensorSpec(name=f"{name}", shape=(2,), layer="layer")
        for name in ("weight", "batch_norm1.weight", "batch_norm1.running_var")
    )
)
MEAN = MeanSettings(weighting="equal")
CLIPPED = NoNoise(clipping_norm=1.0)
PAPER = PaperNoise(randomisation_magnitude=0.01, score="clean")
CENTRAL = CentralNoise(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    delta=1e-5,
    epsilon_budget=8.0,
    adjacency="zero-out",
)
TREE = TreeNoise(
    clipping_norm=1.0,
    noise_multiplier=1.0,
    delta=1e-5,
    epsilon_budget=8.0,
    adjacency="zero-out",
    min_separation=1,
    max_participation=1,
)
BOUNDED = HypernetworkSettings(client_gradient_norm=1.0)


def check(
    settings: PersonalisationSettings,
    schema: Schema,
    privacy: PrivacySettings,
    aggregation: AggregationSettings = MEAN,
    *,
    compression: CompressionSettings | None = None,
) -> None:
    check_personalisation(
        settings,
        assign_roles(settings, schema),
        privacy,
        aggregation,
        compression=compression,
    )


@pytest.mark.parametrize("privacy", [NoNoise(), CLIPPED, CENTRAL])
@pytest.mark.parametrize("aggregation", [MEAN, AttentiveSettings()])
def test_personal_tensors_go_with_every_rule_and_noise(
    privacy: PrivacySettings, aggregation: AggregationSettings
) -> None:
    check(FedPerSettings(), UNTIED, privacy, aggregation)
    check(VanillaSettings(), TRANSFORMER, privacy, aggregation)
    check(FedBnSettings(), WITH_NORM, privacy, aggregation)


def test_generated_tensors_go_with_every_rule_where_nothing_is_promised() -> None:
    check(FedTpSettings(), TRANSFORMER, CLIPPED, AttentiveSettings())


def test_a_bounded_hypernetwork_goes_with_central_noise() -> None:
    check(FedTpSettings(hypernetwork=BOUNDED), TRANSFORMER, CENTRAL, AttentiveSettings())
    check(PFedHnSettings(hypernetwork=BOUNDED), UNTIED, CENTRAL)


@pytest.mark.parametrize(
    ("settings", "schema", "privacy", "aggregation", "message"),
    [
        (GlobalSettings(), WITH_NORM, CLIPPED, MEAN, "running statistics such as batch_norm1.run"),
        (GlobalSettings(), WITH_NORM, PAPER, MEAN, 'set method = "fedbn"'),
        (LocalSettings(), UNTIED, CLIPPED, MEAN, '"local" sends nothing that could be clipped'),
        (LocalSettings(), UNTIED, NoNoise(), AttentiveSettings(), '"local" shares no tensor'),
        (PFedHnSettings(), UNTIED, CLIPPED, AttentiveSettings(), '"pfedhn" shares no tensor'),
        (FedTpSettings(), TRANSFORMER, CENTRAL, MEAN, "needs .*client_gradient_norm"),
        (PFedHnSettings(), UNTIED, TREE, MEAN, '"ftrl" covers sums of shared tensors only'),
        (FedTpSettings(), TRANSFORMER, PAPER, MEAN, 'set score = "arrived"'),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_reason(
    settings: PersonalisationSettings,
    schema: Schema,
    privacy: PrivacySettings,
    aggregation: AggregationSettings,
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        check(settings, schema, privacy, aggregation)


LOSSLESS = CompressionSettings(uplink="none", entropy="zstd")
ROUNDED = CompressionSettings(uplink="int8")


@pytest.mark.parametrize(
    ("aggregation", "compression", "message"),
    [
        (MeanSettings(server_step_size=1.5), None, "server_step_size above 1 carries"),
        (MEAN, ROUNDED, "a compression that loses something"),
    ],
)
def test_running_statistics_must_stay_averages_of_the_clients(
    aggregation: AggregationSettings,
    compression: CompressionSettings | None,
    message: str,
) -> None:
    check(GlobalSettings(), WITH_NORM, NoNoise(), compression=LOSSLESS)
    # Without a batch norm, or where it stays on the device, all of them go.
    for method, schema in ((GlobalSettings(), UNTIED), (FedBnSettings(), WITH_NORM)):
        check(method, schema, NoNoise(), aggregation, compression=compression)

    with pytest.raises(ValueError, match=f'{message}.*for a voice model.norm = "layer"'):
        check(
            GlobalSettings(),
            WITH_NORM,
            NoNoise(),
            aggregation,
            compression=compression,
        )


def test_devices_need_a_method_that_sends_something() -> None:
    check_deployable(FedPerSettings())
    with pytest.raises(ValueError, match="run it with sotto-simulate"):
        check_deployable(LocalSettings())
