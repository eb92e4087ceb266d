"""What is measured of each client when a run is over: its keys, and what fine-tuning gives it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import export.releases.release
from edge_client.personalisation.own_model import own_model
from edge_client.personalisation.state import read_state
from edge_client.training.local_round import LocalTrainer
from export.releases.client_model import client_parameters
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, word_network
from models.networks.role_vectors import put_part
from models.plan.plan import plan_schema, released_schema
from models.settings.model import schema_of
from models.tasks.keystrokes import KeystrokeCounts, keystroke_savings
from models.tasks.metrics import Counts
from models.tasks.next_word import NextWord
from models.text.vocabulary import EOS
from server.config.federation import ConfigError
from server.releases.files import read_release
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Figures
from simulation.population.population import TextPopulation
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.fine_tuning import OwnScore

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]

OWN = ('data.split="by-user-time"', "data.keystrokes=true", "rounds.cap=2")
TRANSFORMER = (
    'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
    "layer_count=1, feedforward_size=8, context_size=16}"
)
PLAIN = (
    'privacy={mode="none"}',
    'aggregation={rule="mean"}',
    "training.learning_rate=0.05",
)
CLIENT = "device-0002"


@pytest.fixture
def typists(population: TextPopulation) -> TextPopulation:
    """Return the six clients; each but the last types what follows its own text, in sentences."""
    words = population.vocabulary.words
    typed = {
        name: [
            [words[row] for row in ((torch.arange(10) + int(stream[-1])) % 48 + 2).tolist()],
            [words[2], "zebra-like"],
        ]
        for name, stream in population.clients.items()
        if name != "device-0006"
    }
    streams = {
        name: torch.tensor(population.vocabulary.token_stream(sentences))
        for name, sentences in typed.items()
    }
    held_out: dict[str, dict[str, torch.Tensor]] = {"valid": {}, "test": {}}
    return replace(
        population,
        own_test=streams,
        own_typed=typed,
        held_out=held_out,
        typed=list(typed.values()),
    )


def read(path: Path, kind: Any) -> Any:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def test_where_all_share_one_model_the_keys_are_those_it_saves_everyone(
    configured: Configured, typists: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured(*OWN)

    final = run_simulation(config, tables, typists, tmp_path, RunOptions(worker_count=2))

    network = word_network(build_network(config.model))
    release = read_release(tmp_path / "releases" / "latest")
    load_parameters(network, schema_of(config.model), torch.tensor(release.parameters))
    together = keystroke_savings(network, typists.vocabulary, typists.typed)
    assert final["keystroke_savings"] == together.savings
    assert final["keystroke_ceiling"] == together.ceiling
    keys = read(tmp_path / "keystrokes.json", dict[str, KeystrokeCounts])
    assert list(keys) == list(typists.own_typed)
    assert sum(keys.values(), start=KeystrokeCounts()) == together


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ditto", "pfedme", "vanilla", "local"])
def test_everyone_types_with_a_model_of_their_own(
    configured: Configured, typists: TextPopulation, tmp_path: Path, method: str
) -> None:
    settings = (f'personalisation={{method="{method}"}}', *PLAIN, "rounds.cohort_size=6")
    config, tables = configured(*OWN, TRANSFORMER, *settings)

    final = run_simulation(config, tables, typists, tmp_path, RunOptions(worker_count=2))

    # By hand: the released tensors, those that the client keeps, or a whole model beside them.
    release = read_release(tmp_path / "releases" / "latest")
    plan, trainer = release.plan, LocalTrainer(release.plan)
    kept = read_state(tmp_path / "states" / CLIENT / "000002.bin", trainer.layout)
    assert kept is not None
    whole = plan_schema(plan)
    if kept.extras:
        model = own_model(whole, kept.extras)
    else:
        model = torch.zeros(whole.element_count)
        put_part(model, whole, released_schema(plan), torch.tensor(release.parameters))
        put_part(model, whole, trainer.layout.personal, kept.personal)
    network = word_network(build_network(config.model))
    load_parameters(network, whole, model)
    keys = read(tmp_path / "keystrokes.json", dict[str, KeystrokeCounts])
    own = keystroke_savings(network, typists.vocabulary, [typists.own_typed[CLIENT]])
    assert keys[CLIENT] == own
    assert final["keystroke_savings"] == sum(keys.values(), start=KeystrokeCounts()).savings


def test_what_can_be_exported_for_a_client_is_what_it_was_measured_with(
    configured: Configured, typists: TextPopulation, tmp_path: Path
) -> None:
    settings = ('personalisation={method="fedtp"}', *PLAIN, "rounds.cohort_size=6")
    config, tables = configured(*OWN, TRANSFORMER, *settings)
    run_simulation(config, tables, typists, tmp_path, RunOptions(worker_count=2))

    release = export.releases.release.read_release(export.releases.release.find_release(tmp_path))
    network = word_network(build_network(config.model))
    keys = read(tmp_path / "keystrokes.json", dict[str, KeystrokeCounts])
    counts = read(tmp_path / "clients.json", dict[str, Counts])
    for client, typed in typists.own_typed.items():
        model = torch.tensor(client_parameters(release, client))
        load_parameters(network, schema_of(config.model), model)
        assert keys[client] == keystroke_savings(network, typists.vocabulary, [typed])
        own = NextWord().evaluate(network, [typists.own_test[client]])
        assert counts[client] == own


@pytest.mark.slow
def test_neighbours_vote_while_a_client_types(
    configured: Configured, typists: TextPopulation, tmp_path: Path
) -> None:
    savings: list[Figures] = []
    for neighbours in ("", ", neighbours={count=1, share=1.0}"):
        settings = f'personalisation={{method="fedtp"{neighbours}}}'
        config, tables = configured(*OWN, TRANSFORMER, settings, *PLAIN)
        out = tmp_path / f"run-{len(savings)}"
        savings.append(run_simulation(config, tables, typists, out, RunOptions()))

    # The same training; the votes know what follows what, a network of two rounds does not.
    alone, helped = savings
    assert alone["bytes_up"] == helped["bytes_up"]
    assert float(helped["keystroke_savings"] or 0) > float(alone["keystroke_savings"] or 0)


@pytest.mark.slow
def test_fine_tuning_is_what_a_client_does_who_trains_on_alone(
    configured: Configured, typists: TextPopulation, tmp_path: Path
) -> None:
    falling = "training.decay={last_round=2, final_share=0.1}"
    config, tables = configured(
        *OWN, "data.fine_tuning_epochs=[1, 3]", "training.local_epochs=2", falling
    )

    final = run_simulation(config, tables, typists, tmp_path, RunOptions(worker_count=2))

    # By hand: one epoch a round from the released model on, in steps of round 1, nothing clipped.
    release = read_release(tmp_path / "releases" / "latest")
    plan = release.plan
    alone = msgspec.structs.replace(
        plan,
        training=msgspec.structs.replace(plan.training, local_epochs=1, decay=None),
        privacy=msgspec.structs.replace(plan.privacy, clipping_norm=None),
    )
    trainer = LocalTrainer(alone)
    model = torch.tensor(release.parameters)
    expected = []
    for round_number in (3, 4, 5):
        model = (
            model
            + trainer.train(
                model, typists.clients[CLIENT], round_number=round_number, client_name=CLIENT
            ).update
        )
        expected.append(trainer.evaluate(model, typists.own_test[CLIENT], client_name=CLIENT))
    found = read(tmp_path / "fine-tuned.json", dict[int, dict[str, OwnScore]])
    assert list(found) == [1, 3]
    assert [found[epochs][CLIENT].counts for epochs in (1, 3)] == [expected[0], expected[2]]
    assert list(found[3]) == list(typists.own_test)
    before = read(tmp_path / "clients.json", dict[str, Counts])
    assert found[1][CLIENT].counts != before[CLIENT]
    # Two figures of each kind: pooled ones are those of all clients together.
    keys = [own.keys for own in found[1].values() if own.keys is not None]
    assert final["fine_tuned_1_keystroke_savings"] == sum(keys, start=KeystrokeCounts()).savings
    assert final["fine_tuned_3_accuracy"] == sum(
        own.counts.top1_hits for own in found[3].values()
    ) / sum(own.counts.token_count for own in found[3].values())


@pytest.mark.slow
def test_fine_tuning_changes_nothing_of_the_run(
    configured: Configured, typists: TextPopulation, tmp_path: Path
) -> None:
    finals: list[Figures] = []
    for epochs in ("[]", "[2]"):
        config, tables = configured(*OWN, f"data.fine_tuning_epochs={epochs}")
        out = tmp_path / f"run-{len(finals)}"
        finals.append(run_simulation(config, tables, typists, out, RunOptions()))

    without, with_it = finals
    assert {name: with_it[name] for name in without} == without


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (("data.fine_tuning_epochs=[2, 1]",), "must rise, from 1, got"),
        (("data.fine_tuning_epochs=[0]",), "must rise, from 1, got"),
        (("data.fine_tuning_epochs=[1]",), 'set split = "by-user-time", got "held-out"'),
        (
            (
                'data.split="by-user-time"',
                TRANSFORMER,
                'personalisation={method="fedtp"}',
                "data.fine_tuning_epochs=[1]",
            ),
            "no whole one; leave it out",
        ),
        (
            (TRANSFORMER, 'personalisation={method="fedtp"}', "data.keystrokes=true"),
            'set split = "by-user-time" or keystrokes = false',
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_before_the_run(
    configured: Configured, settings: tuple[str, ...], refusal: str
) -> None:
    with pytest.raises(ConfigError, match=refusal):
        configured(*settings, 'evaluation={kind="none"}')


def test_the_end_of_a_sentence_costs_no_key(typists: TextPopulation) -> None:
    # What the fixtures above count on: streams end sentences, typed words do not.
    for name, typed in typists.own_typed.items():
        ends = int((typists.own_test[name] == EOS).sum())
        assert ends == len(typed) == 2
