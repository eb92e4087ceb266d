"""A plan that hides text from the coordinator is refused for what it asks, and no other plan is."""

from typing import Any

import msgspec
import pytest

from models.plan.onlookers import check_hiding, hides_from_coordinator
from models.plan.plan import Plan, PlanError
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.personalisation import PFedMeSettings
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise
from privacy.noise.settings import NoNoise, PrivacySettings
from tests.edge_client.training_plan import make_plan
from tests.masked_scene import masked_plan

GUARANTEE: dict[str, Any] = {
    "clipping_norm": 1.0,
    "noise_multiplier": 1.0,
    "delta": 1e-5,
    "epsilon_budget": 1e9,
}
LOCAL = LocalNoise(**GUARANTEE)
CENTRAL = CentralNoise(**GUARANTEE, adjacency="zero-out")
PRIVATE = ExamplePrivacySettings(
    clipping_norm=1.0, noise_multiplier=1.0, sampling_rate=0.1, delta=1e-5
)
FIT = EmbeddingFitSettings()


@pytest.mark.parametrize(
    ("privacy", "example_privacy", "hides"),
    [
        (LOCAL, None, True),
        (LOCAL, PRIVATE, True),
        (NoNoise(), PRIVATE, True),
        (CENTRAL, PRIVATE, True),
        (CENTRAL, None, False),
        (NoNoise(), None, False),
    ],
)
def test_the_coordinator_is_an_onlooker_of_local_noise_and_of_hidden_sentences(
    privacy: PrivacySettings, example_privacy: ExamplePrivacySettings | None, *, hides: bool
) -> None:
    plan = make_plan(privacy=privacy, example_privacy=example_privacy)

    assert hides_from_coordinator(plan) is hides


def with_training(**training: Any) -> Plan:
    return make_plan(privacy=LOCAL, **training)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (with_training(learning_rate=1e30), r"training\.learning_rate must be <= 1e\+06"),
        (with_training(weight_decay=1e7), r"training\.weight_decay"),
        (with_training(gradient_clipping_norm=1e30), r"training\.gradient_clipping_norm"),
        (
            with_training(example_privacy=msgspec.structs.replace(PRIVATE, clipping_norm=1e20)),
            r"training\.example_privacy\.clipping_norm must be <= 1e\+06",
        ),
        (
            with_training(example_privacy=msgspec.structs.replace(PRIVATE, clipping_norm=1e-9)),
            r"example_privacy\.clipping_norm must be >= 1e-06",
        ),
        (
            make_plan(privacy=msgspec.structs.replace(LOCAL, clipping_norm=1e7)),
            "^clipping_norm must be <= 1e",
        ),
        (
            msgspec.structs.replace(
                with_training(), personalisation=PFedMeSettings(inner_learning_rate=1e30)
            ),
            r"personalisation\.inner_learning_rate",
        ),
        (msgspec.structs.replace(with_training(), kind="evaluate"), 'kind "evaluate" must not'),
        (
            msgspec.structs.replace(with_training(), kind="fit_embedding", embedding_fit=FIT),
            'kind "fit_embedding" must not',
        ),
        (
            msgspec.structs.replace(
                make_plan(privacy=NoNoise(), example_privacy=PRIVATE), kind="evaluate"
            ),
            'kind "evaluate" must not',
        ),
    ],
)
def test_what_no_honest_plan_asks_is_refused_by_name(plan: Plan, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        check_hiding(plan)


@pytest.mark.parametrize(
    "plan",
    [
        with_training(learning_rate=1000.0),
        with_training(example_privacy=PRIVATE),
        msgspec.structs.replace(with_training(), kind="fit_personal", embedding_fit=FIT),
        # Nothing is promised of these against the coordinator.
        make_plan(privacy=CENTRAL, learning_rate=1e30),
        msgspec.structs.replace(make_plan(privacy=NoNoise()), kind="evaluate"),
    ],
)
def test_other_plans_are_accepted_as_they_are(plan: Plan) -> None:
    check_hiding(plan)


def test_the_coordinator_is_an_onlooker_of_masked_sums() -> None:
    assert hides_from_coordinator(masked_plan())


def test_a_masked_plan_asks_for_no_counts() -> None:
    with pytest.raises(PlanError, match='kind "evaluate" must not be asked'):
        check_hiding(msgspec.structs.replace(masked_plan(), kind="evaluate"))
