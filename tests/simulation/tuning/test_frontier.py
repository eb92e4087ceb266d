import math
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.axes import Axes

from privacy.accounting.buffer_design import design_buffers
from server.config.federation import FederationConfig, preset_text
from simulation.tuning.candidate import Candidate, Deployment, Mode
from simulation.tuning.fragment import fragment
from simulation.tuning.frontier import (
    NothingWithinBudgetError,
    frontier,
    markdown,
    recommended,
    write,
)
from simulation.tuning.measuring import Measurement

DEPLOYMENT = Deployment(population_size=10_000, rounds=20, delta=1e-5, honest_share=0.7)


def measured(
    epsilon: float,
    perplexity: float,
    *,
    mode: Mode = "central",
    coordinator_epsilon: float | None = None,
) -> Measurement:
    candidate = Candidate(
        mode=mode,
        rule="attentive",
        noise_multiplier=1.25,
        clipping_norm=3.0,
        attention_strength=0.25,
        cohort=500,
        server_step_size=1.0,
    )
    return Measurement(
        candidate=candidate,
        name=mode,
        rule="attentive",
        epsilon=epsilon,
        coordinator_epsilon=coordinator_epsilon,
        slot_count=600,
        noise_std=0.01,
        perplexity=perplexity,
        perplexity_spread=1.0,
        recall=0.3,
        recall_spread=0.01,
        seeds=(1, 2),
    )


def test_the_frontier_holds_what_nothing_beats_in_both() -> None:
    points = [measured(4, 120), measured(1, 200), measured(2, 250), measured(8, 119)]

    assert [(one.epsilon, one.perplexity) for one in frontier(points)] == [
        (1, 200),
        (4, 120),
        (8, 119),
    ]


def test_the_recommendation_is_the_best_within_the_budget() -> None:
    points = [measured(1, 200), measured(4, 120), measured(8, 119)]

    assert recommended(points, 7.9).epsilon == 4


def test_a_budget_below_everything_measured_is_refused_with_the_smallest_epsilon() -> None:
    with pytest.raises(NothingWithinBudgetError, match="the smallest is 1:"):
        recommended([measured(1, 200), measured(4, 120)], 0.5)


def test_the_settings_say_what_is_noised() -> None:
    trial = measured(4, 120)
    assert trial.candidate is not None
    summed = msgspec.structs.replace(
        trial, candidate=msgspec.structs.replace(trial.candidate, noise_on="sums")
    )

    text = fragment(summed, DEPLOYMENT, target_epsilon=6)

    assert tomllib.loads(text)["privacy"]["noise_on"] == "sums"
    assert tomllib.loads(text)["rounds"]["quorum"] == 250


@pytest.mark.parametrize("mode", ["central", "local", "ftrl", "masked"])
def test_the_settings_are_what_a_coordinator_reads(mode: Mode) -> None:
    text = fragment(measured(4, 120, mode=mode), DEPLOYMENT, target_epsilon=6)

    federation = {**tomllib.loads(preset_text("keyboard")), **tomllib.loads(text)}
    config = msgspec.convert(federation, FederationConfig, strict=True)

    privacy = msgspec.to_builtins(config.privacy)
    assert (privacy["mode"], privacy["noise_multiplier"], privacy["epsilon_budget"]) == (
        mode,
        1.25,
        6.0,
    )
    assert config.rounds.cap == 20
    if mode == "central":
        assert (config.rounds.selection, config.rounds.participation_rate) == ("sampled", 0.05)
    if mode == "ftrl":
        # Ten thousand people, five hundred a round: who took part waits for twenty rounds.
        assert (privacy["min_separation"], privacy["max_participation"]) == (20, 1)
        # A new federation gets the mechanism that leaves less noise in its model.
        assert privacy["mechanism"] == "blt"
        assert (privacy["buffer_decays"], privacy["buffer_scales"]) == design_buffers(20, 20, 1)
    if mode == "masked":
        assert (privacy["coordinator_epsilon_budget"], privacy["honest_share"]) == (6.0, 0.7)
        # A round closes with four in five of its cohort.
        assert (config.rounds.quorum, config.rounds.cohort_size) == (400, 500)


def test_results_are_written_for_people_and_programs(tmp_path: Path) -> None:
    # What was drawn twice is told once.
    write([measured(1, 200), measured(4, 120), measured(1, 200)], tmp_path, DEPLOYMENT, "Tried.")

    document = msgspec.json.decode((tmp_path / "tune.json").read_bytes())
    assert [one["epsilon"] for one in document["measurements"]] == [1, 4]
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "10000 enrolled people, 20 rounds" in (tmp_path / "tune.md").read_text()


def test_a_perplexity_beyond_reason_is_told_in_few_digits() -> None:
    *_, good, bad = markdown(
        [measured(1, 123456.78), measured(2, 4.4e33)], DEPLOYMENT, note=""
    ).splitlines()

    assert "| 123456.8 ± 1.0 |" in good
    assert "| 4.4e+33 ± 1.0 |" in bad


@pytest.mark.slow
def test_a_model_that_noise_destroyed_does_not_flatten_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    set_ylim = Axes.set_ylim

    def noted(axes: Axes, *ends: Any, **named: Any) -> Any:  # As matplotlib's own.
        if "top" in named:
            drawn.append(named["top"])
        return set_ylim(axes, *ends, **named)

    monkeypatch.setattr(Axes, "set_ylim", noted)

    write([measured(1, 200), measured(4, 1e15, mode="local")], tmp_path, DEPLOYMENT, "")
    write([measured(1, 200), measured(4, 120)], tmp_path, DEPLOYMENT, "")

    # Ten times the best, or all of them.
    assert drawn == [2000.0, pytest.approx(220.0)]


def test_runs_without_noise_that_diverged_are_told_as_lost_and_not_drawn(tmp_path: Path) -> None:
    quiet = msgspec.structs.replace(measured(1, 50), candidate=None, name="no noise", epsilon=None)
    one_lost = msgspec.structs.replace(quiet, seeds=(1,), lost=(2,))
    all_lost = msgspec.structs.replace(quiet, perplexity=math.inf, seeds=(), lost=(1, 2))

    write([one_lost, all_lost, measured(4, 120)], tmp_path, DEPLOYMENT, "")

    table = (tmp_path / "tune.md").read_text()
    assert "| 50.0 ± 1.0, 1 of 2 lost |" in table
    assert "| lost |" in table
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_tells_each_onlookers_epsilon() -> None:
    central, masked = measured(1, 200), measured(2, 150, mode="masked", coordinator_epsilon=2.0)

    head, _, first, second = markdown([central, masked], DEPLOYMENT, note="").splitlines()[-4:]

    assert head.startswith("| mode | rule | ε, readers | ε, coordinator |")
    assert first.startswith("| central | attentive | 1 | ∞ |")
    assert second.startswith("| masked | attentive | 2 | 2 |")


def test_the_table_marks_the_frontier() -> None:
    lines = markdown([measured(1, 200), measured(2, 250)], DEPLOYMENT, note="").splitlines()

    assert [line.endswith("| frontier |") for line in lines[-2:]] == [True, False]
