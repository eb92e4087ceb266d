import math
from typing import Any

import pytest

from models.settings.model import schema_of
from models.vector.schema import Schema
from privacy.accounting.accountant import epsilon_of
from privacy.accounting.events import GaussianRelease, MaskedRelease, SecretCoinFlips
from privacy.accounting.slot_overflow import slot_count_for
from privacy.accounting.toeplitz import buffered_sensitivity_squared
from privacy.accounting.tree import epsilon_of_rho
from simulation.config.simulation import config_from
from simulation.tuning.candidate import Candidate, Deployment, promise_of
from simulation.tuning.trial import trial_tables

DEPLOYMENT = Deployment(population_size=10_000, rounds=20, delta=1e-5, honest_share=0.7)


def make(**changed: Any) -> Candidate:
    values: dict[str, Any] = {
        "mode": "central",
        "rule": "mean",
        "noise_multiplier": 2.0,
        "clipping_norm": 3.0,
        "attention_strength": 0.0,
        "cohort": 500,
        "server_step_size": 0.5,
    }
    return Candidate(**{**values, **changed})


@pytest.fixture
def schema(tables: dict[str, Any]) -> Schema:
    return schema_of(config_from(tables, "test").model)


def test_the_noise_of_an_equal_mean_is_z_times_c_over_m(schema: Schema) -> None:
    promise = promise_of(make(), DEPLOYMENT, schema)

    slots = slot_count_for(10_000, 0.05, rounds=20, delta=1e-5)
    assert promise.slot_count == slots > 500
    assert promise.fill == 500 / slots
    assert promise.noise_std == pytest.approx(2.0 * 3.0 / slots, rel=1e-4)


def test_epsilon_is_that_of_every_round_with_secret_coin_flips(schema: Schema) -> None:
    promise = promise_of(make(), DEPLOYMENT, schema)

    coins = SecretCoinFlips(
        sampling_rate=0.05, population_size=10_000, slot_count=promise.slot_count
    )
    event = GaussianRelease(noise_multiplier=2.0, adjacency="zero-out", sampling=coins)
    assert promise.epsilon == pytest.approx(epsilon_of([event] * 20, 1e-5))


def test_attention_needs_more_noise_for_the_same_promise(schema: Schema) -> None:
    equal = promise_of(make(), DEPLOYMENT, schema)
    attentive = promise_of(make(rule="attentive", attention_strength=0.5), DEPLOYMENT, schema)

    assert attentive.epsilon == equal.epsilon
    # The price of attention is at most e^κ, and close to it in a large cohort.
    assert 1.6 < attentive.noise_std / equal.noise_std < math.exp(0.5) * 1.01


def test_a_local_promise_needs_no_coordinator_and_sums_to_a_larger_noise(schema: Schema) -> None:
    promise = promise_of(make(mode="local"), DEPLOYMENT, schema)

    assert promise.fill == 1
    assert promise.noise_std == pytest.approx(2.0 * 2 * 3.0 / math.sqrt(500))


def test_a_trial_adds_the_noise_of_the_deployment_to_the_mean_at_hand(
    schema: Schema, tables: dict[str, Any]
) -> None:
    promise = promise_of(make(), DEPLOYMENT, schema)

    trial = trial_tables(
        tables, make(), promise, deployment=DEPLOYMENT, cohort_at_hand=3, schema=schema
    )

    # After the server's step of 0.5, of which empty places take their share.
    assert trial["privacy"] == {
        "mode": "paper-server",
        "clipping_norm": 3.0,
        "randomisation_magnitude": pytest.approx(0.5 * promise.noise_std),
    }
    assert trial["aggregation"]["server_step_size"] == pytest.approx(0.5 * promise.fill)
    assert trial["rounds"] == tables["rounds"]


def test_a_local_trial_leaves_the_deployments_noise_on_the_mean(
    schema: Schema, tables: dict[str, Any]
) -> None:
    promise = promise_of(make(mode="local"), DEPLOYMENT, schema)

    trial = trial_tables(
        tables, make(mode="local"), promise, deployment=DEPLOYMENT, cohort_at_hand=9, schema=schema
    )

    # A mean of nine draws is a third as large as one.
    assert trial["privacy"]["randomisation_magnitude"] / 3 == pytest.approx(promise.noise_std)


def test_correlated_noise_is_tried_and_promised_through_the_same_buffers(
    schema: Schema, tables: dict[str, Any]
) -> None:
    candidate = make(mode="ftrl", cohort=2500)
    promise = promise_of(candidate, DEPLOYMENT, schema)

    trial = trial_tables(
        tables, candidate, promise, deployment=DEPLOYMENT, cohort_at_hand=3, schema=schema
    )

    # Everybody's turn comes every fourth round: five of twenty.
    rounds, separation, most = 20, 4, 5
    design = tuple(trial["privacy"]["buffer_decays"]), tuple(trial["privacy"]["buffer_scales"])
    assert trial["privacy"]["mechanism"] == "blt"
    squared = buffered_sensitivity_squared(*design, rounds, separation, most)
    assert promise.epsilon == pytest.approx(epsilon_of_rho(squared / (2 * 2.0**2), 1e-5))


def test_a_masked_promise_has_every_share_in_the_model_and_counts_the_honest_ones(
    schema: Schema, tables: dict[str, Any]
) -> None:
    # Closing needs 0.8 of 500, and of these 400 seven in ten count: 280.
    promise = promise_of(make(mode="masked"), DEPLOYMENT, schema)

    event = MaskedRelease(noise_multiplier=2.0, adjacency="zero-out", honest_contributors=280)
    assert promise.epsilon == promise.coordinator_epsilon
    assert promise.epsilon == pytest.approx(epsilon_of([event] * 20, 1e-5))
    # S = C sqrt(1.1), and 500 shares of which 280 together are z S; over 500 updates.
    std = 2.0 * 3.0 * math.sqrt(1.1) * math.sqrt(500 / 280) / 500
    assert promise.noise_std == pytest.approx(std, rel=1e-4)
    trial = trial_tables(
        tables,
        make(mode="masked"),
        promise,
        deployment=DEPLOYMENT,
        cohort_at_hand=10,
        schema=schema,
    )
    # The same noise on the mean of ten, whose sums move as far.
    assert (trial["privacy"]["mode"], trial["privacy"]["noise_on"]) == ("central", "sums")
    here = trial["privacy"]["noise_multiplier"] * 3.0 * math.sqrt(1.1) / 10
    assert here == pytest.approx(std, rel=1e-4)


def test_only_devices_that_noise_their_own_promise_anything_against_the_coordinator(
    schema: Schema,
) -> None:
    promised = {
        mode: promise_of(make(mode=mode), DEPLOYMENT, schema).coordinator_epsilon
        for mode in ("central", "ftrl", "local", "masked")
    }

    assert (promised["central"], promised["ftrl"]) == (None, None)
    assert promised["local"] is not None
    assert promised["masked"] is not None


def test_a_masked_deployment_says_how_many_are_believed(schema: Schema) -> None:
    unsaid = Deployment(population_size=10_000, rounds=20, delta=1e-5)

    with pytest.raises(ValueError, match="honest_share must be given for mode masked"):
        promise_of(make(mode="masked"), unsaid, schema)


@pytest.mark.parametrize("mode", ["central", "ftrl"])
def test_a_trial_of_sums_leaves_both_sums_the_relative_noise_of_the_deployments(
    mode: str, schema: Schema, tables: dict[str, Any]
) -> None:
    candidate = make(mode=mode, rule="attentive", attention_strength=1.0, noise_on="sums")
    promise = promise_of(candidate, DEPLOYMENT, schema)

    trial = trial_tables(
        tables, candidate, promise, deployment=DEPLOYMENT, cohort_at_hand=3, schema=schema
    )

    # 500 people's sums with noise z are 3 people's with 3 / 500 of it, whatever they weigh.
    assert trial["privacy"]["noise_multiplier"] == pytest.approx(2.0 * 3 / 500)
    assert trial["privacy"]["noise_on"] == "sums"
    # Empty places pull nothing to zero.
    assert trial["aggregation"]["server_step_size"] == 0.5
    assert promise.noise_std == pytest.approx(2.0 * 3.0 * math.sqrt(1.1) / 500, rel=1e-4)


def test_noise_on_sums_is_no_matter_for_devices_noise(schema: Schema) -> None:
    assert promise_of(make(mode="local", noise_on="sums"), DEPLOYMENT, schema) == promise_of(
        make(mode="local"), DEPLOYMENT, schema
    )


@pytest.mark.parametrize("noise_on", ["mean", "sums"])
@pytest.mark.parametrize("mode", ["central", "local", "ftrl", "masked"])
def test_every_mode_makes_a_configuration_that_can_be_read(
    mode: str, noise_on: str, schema: Schema, tables: dict[str, Any]
) -> None:
    candidate = make(mode=mode, noise_on=noise_on)
    promise = promise_of(candidate, DEPLOYMENT, schema)
    rounds = {"cap": 4, "participation_rate": 0.1, "quorum": 2, "deadline_s": 60.0}

    for given in (tables, {**tables, "rounds": rounds}):
        trial = trial_tables(
            given, candidate, promise, deployment=DEPLOYMENT, cohort_at_hand=3, schema=schema
        )
        # Whether by number or by share, the clients at hand are the same.
        assert config_from(trial, "trial").rounds.cohort_size_of(30) == 3


def test_a_cohort_larger_than_the_population_is_refused(schema: Schema) -> None:
    with pytest.raises(ValueError, match="between 1 and the population of 10000, got 20000"):
        promise_of(make(cohort=20_000), DEPLOYMENT, schema)


def test_a_delta_above_one_over_the_population_is_refused() -> None:
    with pytest.raises(ValueError, match="delta"):
        Deployment(population_size=1000, rounds=1, delta=0.01)
