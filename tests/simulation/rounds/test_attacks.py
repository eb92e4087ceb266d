"""What attackers send, train on and do to a run."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from models.masked.layout import CHECK_COUNT, masked_layout
from models.networks.registry import build_network, word_network
from models.settings.model import GruLmSettings
from models.tasks.image_classification import LabelledImages
from models.text.vocabulary import EOS, shipped_vocabulary
from server.aggregation.robust_settings import KrumSettings, MedianSettings, TrimmedMeanSettings
from server.aggregation.settings import MeanSettings
from server.config.federation import ConfigError, parse_config, preset_text
from simulation.config.attack import AttackSettings, check_attack
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import read_metrics
from simulation.population.population import Population, PopulationError, TextPopulation
from simulation.rounds.attacks import Attackers, backdoor_figures, opened, unseen_deviations
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.jobs import Trained
from tests.masked_scene import masked_noise, masked_plan
from tests.simulation.here import HERE
from tests.simulation.killed_runs import RunKilledError, StopsAfter
from tests.simulation.runs.test_runner import (
    last_parameters,
    without_times,
)

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
NAMES = [f"device-{k:04}" for k in range(1, 11)]
COHORT = list(enumerate(NAMES))


def attack(kind: str, **settings: float | str) -> AttackSettings:
    # Any: the kinds are literals, and here one is a parameter of a test.
    values: dict[str, Any] = {"kind": kind, "fraction": 0.2, **settings}
    return AttackSettings(**values)


def own_update(slot: int) -> Tensor:
    # Three elements, and one told behind them.
    return torch.tensor([slot + 1.0, -1.0, 2.0, 1.0])


def train(cohort: Sequence[tuple[int, str]]) -> Iterator[Trained]:
    for slot, name in cohort:
        yield Trained(slot, name, own_update(slot), 7, 0.5, 1.0, 16)


def sent(settings: AttackSettings, seed: int = 1, step: float = 1.0) -> dict[int, Tensor]:
    """Return what the attackers of one round send, by slot; everybody else sends its own."""
    attackers = Attackers(settings, NAMES, seed=seed)
    updates = {}
    for client in attackers.trained(
        COHORT, train, rehearse=train, round_number=1, element_count=3, server_step_size=step
    ):
        assert client.update is not None
        assert client.example_count == 7
        if client.client_name in attackers.names:
            updates[client.slot] = client.update
        else:
            assert torch.equal(client.update, own_update(client.slot))
    return updates


def test_attackers_are_a_share_of_the_clients_and_follow_from_the_seed() -> None:
    first, again, other = (Attackers(attack("nan"), NAMES, seed=seed).names for seed in (1, 1, 2))

    assert first == again
    assert len(first) == 2
    # 45 pairs: one chance in 45 that another seed draws the same, and the seeds are fixed.
    assert first != other
    assert len(Attackers(attack("nan", fraction=0.01), NAMES, seed=1).names) == 1


@pytest.mark.parametrize(("boost", "factor"), [({}, -1.0), ({"boost": 10.0}, -10.0)])
def test_a_sign_flip_leaves_what_is_told_behind_the_update(
    boost: dict[str, float], factor: float
) -> None:
    updates = sent(attack("sign-flip", **boost))

    assert len(updates) == 2
    for slot, update in updates.items():
        assert update.tolist() == [*(factor * own_update(slot)[:3]).tolist(), 1.0]


@pytest.mark.parametrize(("kind", "factor"), [("label-flip", 20.0)])
def test_a_boost_multiplies_what_was_trained(kind: str, factor: float) -> None:
    for slot, update in sent(attack(kind)).items():
        assert update[:3].tolist() == (factor * own_update(slot)[:3]).tolist()


def test_replacers_share_what_makes_the_mean_their_model() -> None:
    # Ten places, a step of 0.5, two attackers: each is multiplied by 10 / (0.5 * 2), so that the
    # mean of ten holds half of the sum of their updates over the step.
    for slot, update in sent(attack("model-replacement"), step=0.5).items():
        assert update[:3].tolist() == (10 * own_update(slot)[:3]).tolist()


def test_noise_is_as_long_as_so_many_honest_updates_and_repeats() -> None:
    first, again = sent(attack("noise", boost=4.0)), sent(attack("noise", boost=4.0))

    for slot, update in first.items():
        assert torch.equal(update, again[slot])
        expected = 4.0 * float(own_update(slot)[:3].norm())
        # The norm of three normal numbers over √3 leaves [0.05, 3] with a chance below 1e-3.
        assert 0.05 < float(update[:3].norm()) / expected < 3
    one, other = first.values()
    assert not torch.equal(one[:3] / one[:3].norm(), other[:3] / other[:3].norm())


def test_nan_is_nan_everywhere() -> None:
    for update in sent(attack("nan")).values():
        assert torch.isnan(update[:3]).all()


def test_colluders_send_their_mean_less_some_deviations() -> None:
    settings = attack("little-is-enough", deviations=1.5)

    updates = sent(settings)

    own = np.stack([own_update(slot)[:3].numpy() for slot in updates])
    expected = own.mean(axis=0) - 1.5 * own.std(axis=0)
    for update in updates.values():
        np.testing.assert_allclose(update[:3].numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(("cohort", "attackers"), [(50, 12), (50, 24), (100, 20)])
def test_unseen_deviations_are_those_of_the_paper(cohort: int, attackers: int) -> None:
    supporters = cohort // 2 + 1 - attackers
    share = (cohort - attackers - supporters) / (cohort - attackers)

    assert unseen_deviations(cohort, attackers) == pytest.approx(stats.norm.ppf(share), rel=1e-9)


def test_in_a_small_cohort_nothing_goes_unseen() -> None:
    # s = 6 - 2 = 4 of 8 honest ones: the median itself.
    assert unseen_deviations(10, 2) == 0.0
    assert unseen_deviations(3, 3) == 0.0


@pytest.mark.parametrize("kind", ["label-flip", "model-replacement"])
def test_labels_are_mirrored_in_what_attackers_train_on_alone(kind: str) -> None:
    def images(*labels: int) -> LabelledImages:
        return LabelledImages(
            torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), torch.tensor(labels)
        )

    population = Population(
        clients={name: images(0, 3, 9) for name in NAMES},
        own_test={name: images(0, 3, 9) for name in NAMES},
        held_out={},
    )
    attackers = Attackers(attack(kind), NAMES, seed=1)

    named = attackers.named_examples(population)

    for name in NAMES:
        own, test = named[name], named[f"own-test/{name}"]
        assert isinstance(own, LabelledImages)
        assert isinstance(test, LabelledImages)
        assert own.labels.tolist() == ([9, 6, 0] if name in attackers.names else [0, 3, 9])
        assert test.labels.tolist() == [0, 3, 9]


def text_population(words: int = 10) -> TextPopulation:
    return TextPopulation(
        vocabulary=shipped_vocabulary(words),
        clients={name: torch.tensor([2, 9, EOS, 0] * 5) for name in NAMES},
        held_out={},
        typed=[],
    )


def test_words_are_mirrored_by_rank_and_ends_of_sentences_stay() -> None:
    attackers = Attackers(attack("label-flip"), NAMES, seed=1)

    named = attackers.named_examples(text_population())

    changed = named[next(iter(attackers.names))]
    assert isinstance(changed, Tensor)
    assert changed.tolist() == [9, 2, EOS, 0] * 5


def test_a_backdoor_stands_between_pieces_of_the_attackers_own_text() -> None:
    words = shipped_vocabulary(10)
    before, target = words.words[4], words.words[7]
    attackers = Attackers(attack("backdoor", phrase=before, target=target), NAMES, seed=1)

    named = attackers.named_examples(text_population())

    changed = named[next(iter(attackers.names))]
    assert isinstance(changed, Tensor)
    own = [2, 9, EOS, 0]
    assert changed.tolist() == [*own * 4, EOS, 4, 7, EOS, *own, EOS, 4, 7, EOS]


def test_a_backdoor_of_unknown_words_is_refused() -> None:
    attackers = Attackers(attack("backdoor", phrase="xyzzy", target="the"), NAMES, seed=1)

    with pytest.raises(PopulationError, match="'xyzzy' is not"):
        attackers.named_examples(text_population())


def test_a_backdoor_is_measured_by_the_rank_of_its_target() -> None:
    network = word_network(build_network(GruLmSettings(vocabulary_size=6, hidden_size=2)))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.output_bias.copy_(torch.tensor([9.0, 8.0, 5.0, 2.0, 3.0, 4.0]))

    # Whatever came before, a strip ranks the words 2, 5, 4, 3, and shows no <unk> and no <eos>.
    assert backdoor_figures(network, [3, 4]) == {"backdoor_rank": 3, "backdoor_top3": 1}
    assert backdoor_figures(network, [5, 5, 3]) == {"backdoor_rank": 4, "backdoor_top3": 0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "nan", "fraction": 0.0}, "fraction must be > 0 and < 1"),
        ({"kind": "nan", "boost": 2.0}, "boost must be > 0 and finite, and belongs to"),
        ({"kind": "sign-flip", "boost": math.nan}, "boost must be > 0"),
        ({"kind": "backdoor", "phrase": "see you"}, "phrase and target belong to"),
        ({"kind": "nan", "phrase": "see", "target": "you"}, "phrase and target belong to"),
        ({"kind": "noise", "deviations": 1.0}, "deviations must be >= 0"),
    ],
)
def test_impossible_attacks_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attack(**settings)


def test_an_attack_that_does_not_fit_the_task_is_refused() -> None:
    backdoor = attack("backdoor", phrase="see", target="you")

    with pytest.raises(ValueError, match='needs task = "next_word", got "speech"'):
        check_attack(backdoor, "speech", MeanSettings(), 10)
    with pytest.raises(ValueError, match='task "speech" has none; use "sign-flip"'):
        check_attack(attack("label-flip"), "speech", MeanSettings(), 10)


def test_more_attackers_than_the_rule_stands_are_told_before_the_run() -> None:
    settings = attack("sign-flip", fraction=0.3)

    with pytest.raises(ValueError, match=r'some 3 attackers .* cohort of 10.*"krum" stands 2'):
        check_attack(settings, "next_word", KrumSettings(attackers=2), 10)
    with pytest.raises(ValueError, match="stands 2; lower the fraction"):
        check_attack(settings, "next_word", TrimmedMeanSettings(trim_share=0.2), 10)
    check_attack(settings, "next_word", MedianSettings(), 10)
    # The mean claims nothing.
    check_attack(attack("sign-flip", fraction=0.9), "next_word", MeanSettings(), 10)


def test_under_masks_the_rule_stands_bad_groups() -> None:
    settings, masked = attack("sign-flip", fraction=0.2), masked_noise(groups=5)

    # Two attackers of ten spoil two groups at most, four of twenty four.
    check_attack(settings, "next_word", MedianSettings(), 10, privacy=masked)
    with pytest.raises(ValueError, match='"median" stands 2 bad groups'):
        check_attack(settings, "next_word", MedianSettings(), 20, privacy=masked)


def test_whole_numbers_hold_no_nan() -> None:
    with pytest.raises(ValueError, match='"nan" cannot be sent'):
        check_attack(attack("nan"), "next_word", MedianSettings(), 10, privacy=masked_noise())


@pytest.mark.parametrize("kind", ["sign-flip", "little-is-enough"])
def test_under_masks_attackers_change_what_they_would_send_and_nothing_behind_it(
    kind: str,
) -> None:
    layout = masked_layout(masked_plan(cohort_size=10))
    count = layout.schema.element_count

    def train_masked(cohort: Sequence[tuple[int, str]]) -> Iterator[Trained]:
        for slot, name in cohort:
            vector = torch.full((layout.element_count,), 100 + slot, dtype=torch.int32)
            yield Trained(slot, name, vector.view(torch.float32), 7, 0.5, 1.0, 16)

    more = {"boost": 3.0} if kind == "sign-flip" else {"deviations": 2.0}
    attackers = Attackers(attack(kind, **more), NAMES, seed=1)
    slots = [slot for slot, name in COHORT if name in attackers.names]
    own = {
        client.slot: opened(client.update, layout)
        for client in train_masked(COHORT)
        if client.update is not None
    }
    sent_vectors = {
        client.slot: client.update.view(torch.int32)
        for client in attackers.trained(
            COHORT,
            train_masked,
            rehearse=train_masked,
            round_number=1,
            element_count=count,
            server_step_size=1.0,
            layout=layout,
        )
        if client.update is not None
    }

    # Three times the other way, or two deviations below the two colluders' mean.
    first, second = (own[slot] for slot in slots)
    lower = (first + second) / 2 - (first - second).abs()
    for slot, vector in sent_vectors.items():
        changed = -3 * own[slot] if kind == "sign-flip" else lower
        expected = torch.cat([(changed if slot in slots else own[slot])[:count], own[slot][count:]])
        # To half a step in each element of the rotation.
        away = (opened(vector, layout) - expected).norm() / layout.grid.step
        assert away <= math.sqrt(layout.noised_count) / 2 + 1e-3
        assert vector[layout.noised_count :].tolist() == [100 + slot] * CHECK_COUNT


SIX = ("rounds.cohort_size=6", "rounds.quorum=4", "rounds.cap=3")
# Of six, floor(0.25 x 6) = 1 is stood, and round(0.3 x 6) = 2 attack; round(0.2 x 6) = 1.
TRIMMED = 'aggregation={rule="trimmed-mean", trim_share=0.25}'


def test_settings_with_more_attackers_than_the_rule_stands_are_refused(
    configured: Configured,
) -> None:
    configured(*SIX, TRIMMED, 'attack={kind="sign-flip", fraction=0.2}')

    with pytest.raises(ConfigError, match=r'some 2 attackers .* cohort of 6.*"trimmed-mean" sta'):
        configured(*SIX, TRIMMED, 'attack={kind="sign-flip", fraction=0.3}')


def test_in_a_cohort_that_follows_the_population_they_are_refused_before_the_first_round(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    everybody = "rounds={cap=1, participation_rate=1.0, quorum=4, deadline_s=60.0}"
    config, tables = configured(everybody, TRIMMED, 'attack={kind="sign-flip", fraction=0.3}')

    with pytest.raises(ValueError, match=r"some 2 attackers into a cohort of 6.* stands 1;"):
        run_simulation(config, tables, population, tmp_path, HERE)

    assert read_metrics(tmp_path) == []


def test_a_backdoor_needs_a_whole_model_to_be_measured_in(configured: Configured) -> None:
    own_head = ("model.tied=false", 'personalisation={method="fedper"}')
    mean = 'aggregation={rule="mean"}'

    configured(*own_head, mean, 'attack={kind="sign-flip", fraction=0.2}')
    with pytest.raises(ConfigError, match=r'measured in the released model, .*"fedper"'):
        configured(
            *own_head, mean, 'attack={kind="backdoor", fraction=0.2, phrase="see", target="you"}'
        )


def test_a_deployed_federation_knows_no_attack() -> None:
    with pytest.raises(ConfigError, match="unknown field `attack`"):
        parse_config(
            f'{preset_text("keyboard-tiny")}\n[attack]\nkind = "nan"\nfraction = 0.2\n', "test"
        )


def test_nan_clients_cost_no_round_and_the_report_says_what_happened(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured(*SIX, 'attack={kind="nan", fraction=0.2}')

    final = run_simulation(config, tables, population, tmp_path, HERE)

    rows = read_metrics(tmp_path)
    assert [row["contributions"] for row in rows] == [5, 5, 5]
    assert [row["screened_not_finite"] for row in rows] == [1, 1, 1]
    assert {name: final[name] for name in ("attack", "attackers")} == {
        "attack": "nan",
        "attackers": 1,
    }
    assert (final["attacks_sent"], final["attacks_screened"]) == (3, 3)
    assert final["attackers_weight"] == 0.0


@pytest.mark.parametrize(
    ("rule", "weight"),
    # One of six; under the paper's softmax who moved furthest has nearly all the weight.
    [
        ('{rule="mean", weighting="equal"}', pytest.approx(1 / 6)),
        ('{rule="literal"}', pytest.approx(1, abs=0.05)),
    ],
)
def test_a_run_says_what_the_attackers_weighed(
    configured: Configured, population: Population, tmp_path: Path, rule: str, weight: object
) -> None:
    config, tables = configured(
        *SIX,
        "rounds.cap=1",
        'attack={kind="sign-flip", fraction=0.2, boost=100.0}',
        f"aggregation={rule}",
        'privacy={mode="none"}',
    )

    final = run_simulation(config, tables, population, tmp_path, HERE)

    assert final["attackers_weight"] == weight


def test_boosted_attackers_are_set_aside_by_their_norm_once_it_is_known(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured(
        *SIX,
        'attack={kind="sign-flip", fraction=0.2, boost=100.0}',
        "screening={norm_factor=5.0}",
        'aggregation={rule="median"}',
        'privacy={mode="none"}',
    )

    final = run_simulation(config, tables, population, tmp_path, HERE)

    # Without a clipping norm nothing is known in the first round.
    rows = read_metrics(tmp_path)
    assert [row.get("screened_norm") for row in rows] == [None, 1, 1]
    assert (final["attacks_sent"], final["attacks_screened"]) == (3, 2)


@pytest.mark.slow
def test_an_attacked_run_repeats_and_goes_on_after_a_kill(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = configured(
        *SIX,
        'attack={kind="noise", fraction=0.3, boost=2.0}',
        "screening={norm_factor=4.0}",
        'aggregation={rule="trimmed-attentive", trim_share=0.34}',
    )
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    final = run_simulation(config, tables, population, whole, HERE)

    with pytest.raises(RunKilledError):
        run_simulation(config, tables, population, broken, HERE._replace(reporter=StopsAfter(2)))
    resumed = run_simulation(config, tables, population, broken, RunOptions(worker_count=2))

    assert resumed == final
    assert last_parameters(broken) == last_parameters(whole)
    assert without_times(broken) == without_times(whole)


@pytest.mark.slow
def test_a_backdoor_gets_in_under_the_mean(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    words = shipped_vocabulary(50).words
    config, tables = configured(
        *SIX,
        f'attack={{kind="backdoor", fraction=0.3, boost=6.0, phrase="{words[40]} {words[41]}", '
        f'target="{words[20]}"}}',
        'aggregation={rule="mean"}',
        'privacy={mode="none"}',
    )
    honest, honest_tables = configured(*SIX, 'aggregation={rule="mean"}', 'privacy={mode="none"}')

    final = run_simulation(config, tables, population, tmp_path / "attacked", HERE)
    unharmed = run_simulation(honest, honest_tables, population, tmp_path / "honest", HERE)

    assert final["backdoor_top3"] == 1
    assert "backdoor_top3" not in unharmed
