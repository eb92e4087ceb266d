"""What a federation's file must say before a noise mode may promise anything."""

import math

import pytest

from privacy.accounting.budget import PrivacyBudget
from privacy.accounting.events import (
    BufferedRelease,
    GaussianRelease,
    LocalRelease,
    SecretCoinFlips,
    TreeRelease,
    UnprotectedRelease,
)
from privacy.noise.plan_events import budget_of, event_of, fixed_slot_count, sampled_places
from server.config.federation import ConfigError, FederationConfig, parse_config

CENTRAL = """
mode = "central"
clipping_norm = 1.0
noise_multiplier = 1.5
delta = 1e-3
epsilon_budget = 8.0
adjacency = "zero-out"
"""
LOCAL = """
mode = "local"
clipping_norm = 1.0
noise_multiplier = 1.5
delta = 1e-3
epsilon_budget = 8.0
"""
TREE = CENTRAL.replace("central", "ftrl") + "min_separation = 3\nmax_participation = 2\n"
BUFFERS = f'{TREE}mechanism = "blt"\nbuffer_decays = [0.9, 0.5]\nbuffer_scales = [0.2, 0.25]\n'
DRAWN = "cohort_size = 5"
SAMPLED = """
selection = "sampled"
participation_rate = 0.5
population_size = 20
close_early = false
"""
ATTENTIVE = 'rule = "attentive"'


def config(
    privacy: str = CENTRAL,
    rounds: str = DRAWN,
    aggregation: str = ATTENTIVE,
    more: str = "",
) -> FederationConfig:
    return parse_config(
        f"""
seed = 1
[model]
family = "gru_lm"
vocabulary_size = 100
hidden_size = 2
[vocabulary]
name = "english-10k"
size = 100
[training]
learning_rate = 0.5
batch_size = 2
bptt_steps = 3
[privacy]
{privacy}
[aggregation]
{aggregation}
[rounds]
cap = 10
quorum = 1
deadline_s = 10
{rounds}
{more}
""",
        "the test's file",
    )


@pytest.mark.parametrize("privacy", [LOCAL, CENTRAL, TREE])
def test_a_drawn_cohort_of_fixed_size_goes_with_every_guarantee(privacy: str) -> None:
    assert fixed_slot_count(config(privacy).rounds, config(privacy).privacy) == 5


@pytest.mark.parametrize("privacy", [LOCAL, CENTRAL, TREE])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregation": 'rule = "mean"'}, 'set weighting = "equal"'),
        (
            {"more": '[evaluation]\nkind = "devices"\ncohort_size = 2\n'},
            'evaluation.kind = "devices" is refused',
        ),
    ],
)
def test_what_no_noise_covers_is_refused(
    privacy: str, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(privacy, **changes)


@pytest.mark.parametrize("privacy", [CENTRAL, TREE, BUFFERS])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregation": 'rule = "literal"'}, "bounds nobody's influence"),
        ({"rounds": "participation_rate = 0.5"}, "cohort_size must be given under a guarantee"),
        ({"rounds": "cohort_size = 2"}, "slot_count must be >= 3"),
        (
            {"aggregation": 'rule = "attentive"\nattention_strength = 1.5'},
            r"attention_strength must lie in \[0, 1\]",
        ),
    ],
)
def test_a_round_without_a_proved_bound_is_refused(
    privacy: str, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(privacy, **changes)


def test_an_attention_above_a_half_is_allowed_it_only_costs() -> None:
    assert config(aggregation=f"{ATTENTIVE}\nattention_strength = 0.9")


@pytest.mark.parametrize("privacy", [LOCAL, TREE, 'mode = "none"\nclipping_norm = 1.0'])
def test_coins_are_thrown_for_central_noise_only(privacy: str) -> None:
    with pytest.raises(ConfigError, match=r'"sampled" draws cohorts for privacy\.mode'):
        config(privacy, SAMPLED)


def test_a_delta_above_one_over_the_population_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"delta must be at most 1 / population = 0.05 for 20"):
        config(CENTRAL.replace("1e-3", "0.06"), SAMPLED)


def test_the_places_of_sampled_cohorts_are_the_fewest_that_hardly_overflow() -> None:
    sampled = config(rounds=SAMPLED)

    places = sampled_places(sampled.rounds, sampled.privacy)

    # 10 rounds of Bin(20, 1/2): P[X > M] must be at most 1e-4 / 10. From the binomial's own
    # numbers, P[X > 18] = 21 / 2^20 = 2.0e-5 and P[X > 19] = 1 / 2^20 = 9.5e-7.
    assert math.comb(20, 19) + math.comb(20, 20) == 21
    assert places == 19


def test_fewer_places_than_that_are_refused_and_more_are_allowed() -> None:
    with pytest.raises(ConfigError, match=r"rounds\.cohort_size must be >= 19 .* got 18"):
        config(rounds=f"{SAMPLED}\ncohort_size = 18")
    roomy = config(rounds=f"{SAMPLED}\ncohort_size = 20")

    assert sampled_places(roomy.rounds, roomy.privacy) == 20


def test_other_cohorts_have_no_places_to_be_told() -> None:
    drawn = config()

    assert sampled_places(drawn.rounds, drawn.privacy) is None


def test_only_coins_amplify() -> None:
    coins, drawn = config(rounds=SAMPLED), config()
    comes = config(rounds=f'{DRAWN}\nselection = "first-come"\nover_selection = 1.2')

    assert event_of(3, coins.rounds, coins.privacy) == GaussianRelease(
        noise_multiplier=1.5,
        adjacency="zero-out",
        sampling=SecretCoinFlips(sampling_rate=0.5, population_size=20, slot_count=19),
    )
    unamplified = GaussianRelease(noise_multiplier=1.5, adjacency="zero-out", sampling=None)
    assert event_of(3, drawn.rounds, drawn.privacy) == unamplified
    assert event_of(3, comes.rounds, comes.privacy) == unamplified


def test_replaced_updates_are_not_amplified() -> None:
    with pytest.raises(ConfigError, match="sampling must be None with adjacency replace-one"):
        config(CENTRAL.replace("zero-out", "replace-one"), SAMPLED)


def test_a_tree_tells_its_limits_and_its_number() -> None:
    tree = config(f"{TREE}restart_rounds = 4")

    assert event_of(5, tree.rounds, tree.privacy) == TreeRelease(
        noise_multiplier=1.5,
        adjacency="zero-out",
        min_separation=3,
        max_participation=2,
        tree_number=1,
    )


def test_buffers_tell_their_numbers_in_every_round() -> None:
    buffers = config(BUFFERS)

    assert event_of(5, buffers.rounds, buffers.privacy) == BufferedRelease(
        noise_multiplier=1.5,
        adjacency="zero-out",
        min_separation=3,
        max_participation=2,
        buffer_decays=(0.9, 0.5),
        buffer_scales=(0.2, 0.25),
    )


def test_local_noise_is_refused_where_a_device_may_send_twice_in_an_attempt() -> None:
    with pytest.raises(ConfigError, match=r'rounds\.selection must be "drawn" with .*"local"'):
        config(LOCAL, rounds=f'{DRAWN}\nselection = "first-come"')


def test_local_noise_tells_its_multiplier() -> None:
    local = config(LOCAL)

    assert event_of(1, local.rounds, local.privacy) == LocalRelease(noise_multiplier=1.5)


@pytest.mark.parametrize(
    ("privacy", "mode"),
    [
        ('mode = "none"\nclipping_norm = 1.0', "none"),
        ('mode = "paper"\nrandomisation_magnitude = 0.1\nclipping_norm = 1.0', "paper"),
        (
            'mode = "paper-server"\nrandomisation_magnitude = 0.1\nclipping_norm = 1.0',
            "paper-server",
        ),
    ],
)
def test_a_mode_without_a_bound_says_so_in_the_ledger(privacy: str, mode: str) -> None:
    bare = config(privacy)

    event = event_of(1, bare.rounds, bare.privacy)

    assert isinstance(event, UnprotectedRelease)
    assert event.mode == mode
    assert budget_of(bare.privacy) is None


def test_the_budget_is_the_settings_own() -> None:
    assert budget_of(config().privacy) == PrivacyBudget(epsilon_budget=8.0, delta=1e-3)
