import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Figures
from simulation.figures.progress import ManyProgress
from simulation.population.population import Population
from simulation.runs import whole_run
from simulation.runs.whole_run import LocalStarter
from simulation.tuning.candidate import Candidate, Deployment
from simulation.tuning.early_stop import Bar, HopelessError, Watch
from simulation.tuning.measuring import Laboratory, Measurement
from simulation.tuning.space import Space, make_space, parse_dimension
from simulation.tuning.study import search

DEPLOYMENT = Deployment(population_size=10_000, rounds=4, delta=1e-5)


def laboratory(tables: dict[str, Any], population: Population, folder: Path) -> Laboratory:
    return Laboratory(
        tables=tables,
        deployment=DEPLOYMENT,
        population=population,
        seeds=(1, 2),
        worker_count=1,
        folder=folder / "runs",
        starter=LocalStarter(ManyProgress("trials").running),
    )


def space(*searched: str) -> Space:
    dimensions = dict(parse_dimension(text) for text in searched)
    return make_space(["central"], ["mean"], dimensions, clipping_norm=5.0, cohort=500)


def measure(
    tables: dict[str, Any], population: Population, folder: Path, trials: int, *searched: str
) -> list[Measurement]:
    return search(
        space(*searched),
        laboratory(tables, population, folder),
        trial_count=trials,
        folder=folder,
        seed=1,
        after_trial=lambda *_: None,
    )


class StandIn(NamedTuple):
    """Stand in for a trial under way."""

    measure: Callable[[], Measurement]

    def raise_bar(self, bar: Bar, measured: Measurement) -> None:
        bar.passed(measured.epsilon or 0.0, measured.perplexity)


class Searched(NamedTuple):
    """A search of one trial, and its folder."""

    found: list[Measurement]
    folder: Path


@pytest.fixture(scope="module")
def searched(
    one_thread_in_module: None,
    configured: Callable[..., tuple[SimulationConfig, dict[str, Any]]],
    population: Population,
    tmp_path_factory: pytest.TempPathFactory,
) -> Searched:
    folder = tmp_path_factory.mktemp("searched")
    return Searched(measure(configured()[1], population, folder, 1), folder)


@pytest.mark.slow
def test_a_search_goes_on_where_it_stopped_and_repeats_nothing(
    tables: dict[str, Any], population: Population, searched: Searched, tmp_path: Path
) -> None:
    first = searched.found
    shutil.copytree(searched.folder, tmp_path, dirs_exist_ok=True)
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir())

    again = measure(tables, population, tmp_path, 1)
    more = measure(tables, population, tmp_path, 2)

    assert again == first
    assert more[: len(first)] == first
    assert set(runs) < {path.name for path in (tmp_path / "runs").iterdir()}


@pytest.mark.slow
def test_a_measurement_is_the_mean_over_its_seeds(searched: Searched) -> None:
    (one,) = searched.found

    finals = [(searched.folder / "runs").glob(f"*/seed-{seed}/final.json") for seed in (1, 2)]
    assert [len(list(found)) for found in finals] == [1, 1]
    assert one.seeds == (1, 2)
    assert one.perplexity_spread > 0
    assert one.epsilon is not None


@pytest.mark.parametrize("diverged", [math.inf, None])
def test_a_run_without_noise_that_diverged_is_left_out_of_the_mean(
    tables: dict[str, Any],
    population: Population,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    diverged: float | None,
) -> None:
    def run(config: SimulationConfig, *_: Any) -> Figures:
        perplexity = diverged if config.seed == 2 else 40.0
        return {"valid_perplexity": perplexity, "valid_top3_recall": 0.2 * config.seed}

    monkeypatch.setattr(whole_run, "run_simulation", run)

    found = laboratory(tables, population, tmp_path).try_without_noise("mean").measure()

    assert (found.perplexity, found.perplexity_spread, found.recall) == (40.0, 0.0, 0.2)
    assert (found.seeds, found.lost) == ((1,), (2,))


@pytest.mark.slow
def test_a_trial_that_was_cut_off_is_tried_again_first(
    tables: dict[str, Any],
    population: Population,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def stop(self: Laboratory, candidate: Any, bar: Bar) -> Measurement:
        tried.append(candidate)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Laboratory, "try_candidate", stop)
        with pytest.raises(KeyboardInterrupt):
            measure(tables, population, tmp_path, 1)

    (measured,) = measure(tables, population, tmp_path, 1)

    assert measured.candidate == tried[0]


@pytest.mark.slow
def test_a_folder_with_another_search_is_refused(
    tables: dict[str, Any], population: Population, searched: Searched
) -> None:
    with pytest.raises(ValueError, match="a search over other settings"):
        measure(tables, population, searched.folder, 2, "noise_multiplier=1..2")


def test_a_candidate_behind_a_better_one_at_no_larger_epsilon_is_hopeless() -> None:
    bar = Bar(slack=1.25)
    bar.was_at(2.0, [{"round": 4}, {"round": 5, "valid_perplexity": 100.0}])
    bar.passed(2.0, 80.0)

    assert bar.is_hopeless_at(5, 2.0, 126.0)
    assert not bar.is_hopeless_at(5, 2.0, 124.0)
    assert not bar.is_hopeless_at(5, 1.9, 1e9)
    assert not bar.is_hopeless_at(4, 2.0, 1e9)
    # At the end the slack is its root, 1.118.
    assert bar.is_hopeless(3.0, 90.0)
    assert not bar.is_hopeless(3.0, 89.0)


@pytest.mark.parametrize("perplexity", [float("inf"), float("nan"), None])
def test_a_seed_that_diverged_at_its_end_stops_the_first_trial_too(
    perplexity: float | None,
) -> None:
    with pytest.raises(HopelessError, match="after one seed"):
        Watch(Bar(), 1.0, 4).finished({"round": 4, "valid_perplexity": perplexity})


@pytest.mark.slow
def test_a_trial_that_cannot_be_worth_it_is_stopped_before_its_end(
    tables: dict[str, Any], population: Population, tmp_path: Path
) -> None:
    """Same epsilon, but one clipping norm lets nothing be learned."""
    tables["training"] = {**tables["training"], "learning_rate": 5.0, "local_epochs": 3}
    searched = ("noise_multiplier=1", "server_step_size=1", "clipping_norm=10,0.00001")
    found = measure(tables, population, tmp_path, 6, *searched)

    norms = [one.candidate.clipping_norm for one in found if one.candidate is not None]
    # Only before the first run that learned could the other go to its end.
    assert norms.count(0.00001) == norms.index(10.0)
    assert len(found) < 6


@pytest.mark.slow
def test_modes_and_rules_take_turns_and_are_not_held_against_each_other(
    tables: dict[str, Any], population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three local trials after far better central ones: a shared bar would stop them."""
    seen: dict[tuple[str, str], list[Bar]] = {}

    def measure(candidate: Candidate, bar: Bar) -> Measurement:
        perplexity = 50.0 if candidate.mode == "central" else 5e4
        if bar.is_hopeless(1.0, perplexity):
            raise HopelessError("behind")
        return measured_as(candidate, perplexity)

    def try_candidate(self: Laboratory, candidate: Candidate, bar: Bar) -> StandIn:
        seen.setdefault(candidate.kind, []).append(bar)
        return StandIn(partial(measure, candidate, bar))

    monkeypatch.setattr(Laboratory, "try_candidate", try_candidate)
    both = make_space(["central", "local"], ["mean", "attentive"], {}, clipping_norm=5.0, cohort=9)

    found = search(
        both,
        laboratory(tables, population, tmp_path),
        trial_count=12,
        folder=tmp_path,
        seed=1,
        after_trial=lambda *_: None,
    )

    assert {kind: len(bars) for kind, bars in seen.items()} == dict.fromkeys(both.kinds, 3)
    assert len(found) == 12


@pytest.mark.slow
def test_a_batch_is_drawn_first_and_judged_by_what_was_known_before_it(
    tables: dict[str, Any], population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five trials, two at a time, each better than the one before."""
    happened: list[str] = []

    def measure(candidate: Candidate, number: int, bar: Bar) -> Measurement:
        # What trials came to before this batch, and not what its first one came to.
        known = min((100.0 - 10 * one for one in range(number - number % 2)), default=math.inf)
        assert not bar.is_hopeless(1.0, known)
        assert number < 2 or bar.is_hopeless(1.0, known * 1.2)
        happened.append(f"measured {number}")
        return measured_as(candidate, 100.0 - 10 * number)

    def try_candidate(self: Laboratory, candidate: Candidate, bar: Bar) -> StandIn:
        number = sum(line.startswith("drawn") for line in happened)
        happened.append(f"drawn {number}")
        return StandIn(partial(measure, candidate, number, bar))

    monkeypatch.setattr(Laboratory, "try_candidate", try_candidate)

    search(
        space("noise_multiplier=0.5..8"),
        laboratory(tables, population, tmp_path),
        trial_count=5,
        batch=2,
        folder=tmp_path,
        seed=1,
        after_trial=lambda *_: None,
    )

    assert happened == [
        *("drawn 0", "drawn 1", "measured 0", "measured 1"),
        *("drawn 2", "drawn 3", "measured 2", "measured 3"),
        *("drawn 4", "measured 4"),
    ]


def test_a_search_does_not_go_on_from_recall_that_was_counted_before_words_alone(
    tables: dict[str, Any],
    population: Population,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = make_space(["central"], ["mean"], {}, clipping_norm=5.0, cohort=9)

    def tried(folder: Path, unknown_words: float | None, count: int) -> int:
        monkeypatch.setattr(
            Laboratory,
            "try_candidate",
            lambda _, one, __: StandIn(partial(measured_as, one, 50.0, unknown_words)),
        )
        lab = laboratory(tables, population, tmp_path)
        return len(
            search(
                space,
                lab,
                trial_count=count,
                batch=1,
                folder=folder,
                seed=1,
                after_trial=lambda *_: None,
            )
        )

    assert tried(tmp_path / "before", None, 1) == 1
    with pytest.raises(ValueError, match=r"counted before words alone.* another --out"):
        tried(tmp_path / "before", 0.1, 2)
    assert [tried(tmp_path / "now", 0.1, count) for count in (1, 2)] == [1, 2]


def measured_as(
    candidate: Candidate, perplexity: float, unknown_words: float | None = 0.1
) -> Measurement:
    return Measurement(
        candidate=candidate,
        name=candidate.mode,
        rule=candidate.rule,
        epsilon=1.0,
        slot_count=9,
        noise_std=1.0,
        perplexity=perplexity,
        perplexity_spread=0.0,
        recall=0.0,
        recall_spread=0.0,
        seeds=(1,),
        unknown_words=unknown_words,
    )
