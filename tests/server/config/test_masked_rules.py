"""What a federation whose coordinator opens no update may say, and what it may not."""

import pytest

from models.settings.weighing import AttentiveWeights, EqualWeights, ExampleWeights, Weighing
from server.config.federation import ConfigError, FederationConfig, parse_config
from server.config.plans import make_plan

MASKED = """
mode = "masked"
clipping_norm = 1.0
noise_multiplier = 1.5
delta = 1e-3
epsilon_budget = 8.0
coordinator_epsilon_budget = 20.0
honest_share = 0.8
adjacency = "zero-out"
"""
GROUPS = f"{MASKED}groups = 4\n"
EQUAL = 'rule = "mean"\nweighting = "equal"'
TRAINING = "learning_rate = 0.5\nbatch_size = 2\nbptt_steps = 3\nexample_cap = 500"


def config(
    privacy: str = MASKED,
    aggregation: str = 'rule = "attentive"',
    *,
    rounds: str = "cohort_size = 10",
    training: str = TRAINING,
    model: str = 'family = "gru_lm"\nvocabulary_size = 100\nhidden_size = 2\ntied = false',
    deadline_s: str = "10",
    more: str = "",
) -> FederationConfig:
    return parse_config(
        f"""
seed = 1
[model]
{model}
[vocabulary]
name = "english-10k"
size = 100
[training]
{training}
[privacy]
{privacy}
[aggregation]
{aggregation}
[rounds]
cap = 10
quorum = 8
deadline_s = {deadline_s}
{rounds}
{more}
""",
        "the test's file",
    )


@pytest.mark.parametrize(
    ("aggregation", "weighing"),
    [
        ('rule = "mean"\nweighting = "equal"', EqualWeights()),
        ('rule = "mean"', ExampleWeights()),
        (
            'rule = "attentive"\nattention_strength = -2.0\ngrouping = "layer"',
            AttentiveWeights(attention_strength=-2.0, grouping="layer"),
        ),
        (
            'rule = "attentive"\nattention_strength = 5.0',
            AttentiveWeights(attention_strength=5.0, grouping="tensor"),
        ),
    ],
)
def test_a_device_is_told_how_to_weigh_its_own_update(aggregation: str, weighing: Weighing) -> None:
    plan = make_plan(config(aggregation=aggregation), "0" * 32)

    assert plan.weighing == weighing
    assert b'"weighing":{"by":"' in plan.encode()


def test_a_plan_of_another_mode_says_nothing_of_weighing() -> None:
    plan = make_plan(config('mode = "none"\nclipping_norm = 1.0'), "0" * 32)

    assert b"weighing" not in plan.encode()


@pytest.mark.parametrize("rule", ["median", "geometric-median"])
def test_devices_of_a_group_weigh_alike_under_a_robust_rule(rule: str) -> None:
    plan = make_plan(config(GROUPS, f'rule = "{rule}"'), "0" * 32)

    assert plan.weighing == EqualWeights()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregation": 'rule = "literal"'}, "a softmax over everybody's distances"),
        (
            {"aggregation": 'rule = "mean"', "training": TRAINING.replace("500", "1_000_000")},
            "training.example_cap must be below 1,000,000",
        ),
        ({"aggregation": 'rule = "median"'}, "privacy.groups must be >= 3"),
        ({"deadline_s": "604801"}, "rounds.deadline_s must be <= 604800, a week"),
        (
            {"privacy": GROUPS, "aggregation": 'rule = "krum"\nattackers = 1'},
            "privacy.groups must be >= 5",
        ),
        ({"privacy": f"{MASKED}groups = 9"}, "no group may be empty"),
        (
            {"more": '[compression]\nuplink = "int8"\n'},
            "compression may say no more than how releases come down",
        ),
        (
            {"more": '[compression]\nuplink = "int4"\nerror_feedback = true\n'},
            "compression may say no more than how releases come down",
        ),
        ({"more": "[screening]\nlargest_element = 3.0\n"}, "nobody opens an update to look at it"),
        ({"more": "[screening]\nnorm_factor = 3.0\n"}, "screening.norm_factor"),
        (
            {"more": '[evaluation]\nkind = "devices"\ncohort_size = 2\n'},
            'privacy.mode = "masked" promises that the coordinator sees nobody',
        ),
        (
            {
                "training": f"{TRAINING}\nexample_privacy = {{clipping_norm=1.0, "
                "noise_multiplier=1.0, sampling_rate=0.1, delta=1e-5}"
            },
            "training.example_privacy must be absent",
        ),
        (
            {
                "rounds": 'selection = "sampled"\nparticipation_rate = 0.5\npopulation_size = 20\n'
                "close_early = false"
            },
            '"sampled" draws cohorts for privacy.mode',
        ),
    ],
)
def test_what_cannot_go_under_a_mask_is_refused_with_the_reason(
    changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


@pytest.mark.parametrize("method", ["fedtp", "pfedhn"])
def test_a_hypernetwork_cannot_learn_from_updates_that_nobody_opens(method: str) -> None:
    with pytest.raises(ConfigError, match="teaches its hypernetwork by each client"):
        config(
            aggregation=EQUAL,
            model='family = "transformer_lm"\nvocabulary_size = 100\ntied = false',
            more=f'[personalisation]\nmethod = "{method}"\n[personalisation.hypernetwork]\n',
        )


@pytest.mark.parametrize("method", ["fedper", "ditto", "fedprox"])
def test_what_stays_at_home_goes_along(method: str) -> None:
    assert config(more=f'[personalisation]\nmethod = "{method}"\n')


def test_releases_may_come_down_as_what_changed() -> None:
    delta = '[compression]\nuplink = "none"\ndownlink = "delta"\n'

    assert config(more=delta)
