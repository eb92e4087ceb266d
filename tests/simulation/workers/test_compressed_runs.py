"""Compression in a simulation: what is counted, and what clients feed back."""

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch

from edge_client.personalisation.state import PersonalState
from edge_client.training.local_round import LocalTrainer
from models.compression.release_delta import encode_delta
from models.compression.update_format import update_format
from models.networks.flat_parameters import initial_parameters
from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.rounds.federation import Federation
from simulation.workers.pool import WorkerPool
from simulation.workers.state_shelf import StateShelf

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]

FEEDS_BACK = 'compression={uplink="int4", error_feedback=true}'


def test_bytes_that_clients_send_are_those_of_their_payloads(
    configured: Configured, population: Population
) -> None:
    config, _ = configured('compression={uplink="int8"}', "rounds.cohort_size=3")
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)

    with WorkerPool(plan, population.clients, worker_count=1) as pool:
        federation = Federation(config, plan, list(population.clients), pool)
        figures = federation.run_round()

    assert figures["bytes_up"] == 3 * update_format(plan, 1).payload_bytes
    # 882 values are four blocks of 256, the last one filled up, and a scale each.
    assert update_format(plan, 1).payload_bytes == 48 + 4 * (4 + 256)
    assert figures["bytes_down"] == 3 * config.schema.payload_bytes


@pytest.mark.slow
def test_bytes_of_entropy_coded_updates_are_those_that_would_travel(
    configured: Configured, population: Population
) -> None:
    config, _ = configured('compression={uplink="int8", entropy="zstd"}', "rounds.cohort_size=3")
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    names = sorted(population.clients)[:3]
    parameters = initial_parameters(config.model, config.seed)

    with WorkerPool(plan, population.clients, worker_count=1) as pool:
        cohort = list(enumerate(names))
        told = [one.upload_bytes for one in pool.train(parameters, cohort, round_number=1)]

    expected = []
    for name in names:
        result = LocalTrainer(plan).train(
            parameters, population.clients[name], round_number=1, client_name=name
        )
        assert result.payload is not None
        expected.append(len(result.payload))
    assert told == expected


@pytest.mark.slow
@pytest.mark.parametrize("worker_count", [1, 2])
def test_a_client_feeds_back_what_its_last_round_lost(
    configured: Configured, population: Population, tmp_path: Path, worker_count: int
) -> None:
    config, _ = configured(FEEDS_BACK)
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    name = sorted(population.clients)[0]
    parameters = initial_parameters(config.model, config.seed)

    found = []
    with WorkerPool(
        plan, population.clients, worker_count=worker_count, states=StateShelf(tmp_path)
    ) as pool:
        for number in (1, 2, 2):  # The second round is tried twice, and its first try is kept.
            for trained in pool.train(parameters, [(0, name)], round_number=number):
                assert trained.update is not None
                found.append(trained.update.clone())

    trainer, personal, expected = LocalTrainer(plan), None, []
    for number in (1, 2, 2):
        result = trainer.train(
            parameters,
            population.clients[name],
            round_number=number,
            client_name=name,
            personal=personal,
        )
        personal = result.personal
        expected.append(result.update)
    for update, own in zip(found, expected, strict=True):
        assert torch.equal(update, own)
    assert not torch.equal(found[1], found[2])
    forgetful = trainer.train(
        parameters,
        population.clients[name],
        round_number=2,
        client_name=name,
        personal=PersonalState(torch.empty(0), {}),
    )
    assert not torch.equal(forgetful.update, expected[1])


@pytest.mark.slow
def test_layers_take_turns_and_all_of_them_have_moved_after_a_turn(
    configured: Configured, population: Population
) -> None:
    config, _ = configured(
        'compression={uplink="none", layer_groups=2}', 'aggregation={rule="mean"}'
    )
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    first, second = (update_format(plan, number).payload_bytes for number in (1, 2))
    embedding = config.schema.slices["embedding.weight"]

    with WorkerPool(plan, population.clients, worker_count=1) as pool:
        federation = Federation(config, plan, list(population.clients), pool)
        start = federation.parameters.clone()
        sent = [federation.run_round()["bytes_up"]]
        between = federation.parameters.clone()
        sent.append(federation.run_round()["bytes_up"])

    # 50 words of 8; a header of 48 bytes with each of both halves of the model.
    assert first == 48 + 4 * 50 * 8
    assert sent == [3 * first, 3 * (first + second)]
    assert first + second == config.schema.payload_bytes + 2 * 48
    assert not torch.equal(between[embedding], start[embedding])
    assert torch.equal(between[embedding.stop :], start[embedding.stop :])
    assert torch.equal(federation.parameters[embedding], between[embedding])
    assert not torch.equal(federation.parameters[embedding.stop :], between[embedding.stop :])


@pytest.mark.slow
def test_releases_that_come_as_what_changed_are_counted_as_they_would_travel(
    configured: Configured, population: Population
) -> None:
    config, _ = configured(
        'compression={uplink="none", downlink="delta", downlink_step=0.0009765625}',
        "rounds.cohort_size=6",
        # A round moves hardly any value by more than a step, so few bits tell how far.
        "training.learning_rate=0.1",
    )
    step = 2.0**-10
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)

    with WorkerPool(plan, population.clients, worker_count=1) as pool:
        federation = Federation(config, plan, list(population.clients), pool)
        releases, received = [federation.parameters.numpy()], [0]
        for _ in range(3):
            received.append(int(str(federation.run_round()["bytes_down"])))
            releases.append(federation.parameters.numpy())

    # All six clients take part in every round, so each holds the release before.
    whole = encode_delta(config.schema, None, releases[0], step)
    moved = [encode_delta(config.schema, releases[n], releases[n + 1], step) for n in (0, 1)]
    assert received == [0, *accumulate(6 * len(payload) for payload in (whole, *moved))]
    assert len(moved[0]) < len(whole) < config.schema.payload_bytes
    for release in releases:
        assert (release / step == np.rint(release / step)).all()


def test_norms_of_different_layers_are_not_held_against_each_other(configured: Configured) -> None:
    with pytest.raises(ValueError, match="norm_factor must be absent"):
        configured('compression={uplink="none", layer_groups=2}', "screening={norm_factor=4.0}")


def test_feedback_needs_a_place_to_be_kept(configured: Configured, population: Population) -> None:
    config, _ = configured(FEEDS_BACK)
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)

    with pytest.raises(ValueError, match="or its compression keeps personal states"):
        WorkerPool(plan, population.clients, worker_count=1)
