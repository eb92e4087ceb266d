import tempfile
from pathlib import Path
from typing import Any

import pytest

from privacy.accounting.private_selection import epsilon_of_best
from simulation.commands.runs import Request
from simulation.population.population import TextPopulation
from simulation.tuning.private_command import tune_privately
from simulation.tuning.private_search import PrivateSearch, check_varied, search_privately
from simulation.tuning.space import Choices, Space, make_space, parse_dimension

CENTRAL = {
    "mode": "central",
    "clipping_norm": 5.0,
    "noise_multiplier": 1.5,
    "delta": 1e-2,
    "epsilon_budget": 100.0,
    "adjacency": "zero-out",
}
SAMPLED = {
    "cap": 2,
    "selection": "sampled",
    "participation_rate": 0.5,
    "population_size": 6,
    "quorum": 1,
    "deadline_s": 60.0,
    "close_early": False,
}


def space(*searched: str) -> Space:
    dimensions = {
        "noise_multiplier": Choices((1.0,)),
        **dict(parse_dimension(text) for text in searched),
    }
    return make_space(["central"], ["mean"], dimensions, clipping_norm=5.0, cohort=1)


@pytest.fixture
def search(tables: dict[str, Any], population: TextPopulation, tmp_path: Path) -> PrivateSearch:
    text = tmp_path / "public.txt"
    text.write_text("the time of the day\n")
    return PrivateSearch(
        tables={**tables, "privacy": CENTRAL, "rounds": SAMPLED},
        space=space("server_step_size=0.25,0.5"),
        population=population,
        score_text=text,
        expected_runs=1.5,
        target_epsilon=50.0,
        worker_count=1,
    )


@pytest.mark.slow
def test_only_the_best_run_leaves_and_its_price_counts_the_search(
    search: PrivateSearch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []

    def made(prefix: str, **_: Any) -> tempfile.TemporaryDirectory[str]:
        folders.append(tempfile.TemporaryDirectory(prefix=prefix))
        return folders[-1]

    with monkeypatch.context() as patched:
        patched.setattr("simulation.tuning.private_search.TemporaryDirectory", made)
        winner = search_privately(search)

    assert winner.settings["privacy"]["noise_multiplier"] == 1.5
    assert 0.5 <= winner.settings["privacy"]["clipping_norm"] <= 5.0
    assert winner.settings["aggregation"]["server_step_size"] in {0.25, 0.5}
    assert winner.perplexity > 1
    assert winner.epsilon == epsilon_of_best(
        noise_multiplier=1.5, sampling_rate=0.5, rounds=2, delta=1e-2, expected_runs=1.5
    )
    # Figures of every run were in there.
    assert folders
    assert not any(Path(folder.name).exists() for folder in folders)
    assert "how many runs there are is secret" in capsys.readouterr().err


def test_a_run_without_a_guarantee_of_its_own_is_refused(
    search: PrivateSearch, tables: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r'needs privacy.mode = "central"'):
        search_privately(search._replace(tables=tables))

    assert "Searching" not in capsys.readouterr().err


def test_a_search_that_would_spend_more_than_its_target_makes_no_run(
    search: PrivateSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"at most epsilon 0\.1, and would spend"):
        search_privately(search._replace(target_epsilon=0.1))

    assert "Searching" not in capsys.readouterr().err


def test_a_public_text_that_is_missing_is_refused_by_name(search: PrivateSearch) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*nowhere"):
        search_privately(search._replace(score_text=Path("nowhere")))


@pytest.mark.parametrize("searched", ["noise_multiplier=1..2", "cohort=10,20"])
def test_what_epsilon_depends_on_may_not_vary(searched: str) -> None:
    with pytest.raises(ValueError, match="cannot vary on private data"):
        check_varied(space(searched))


def test_what_epsilon_does_not_depend_on_may_vary() -> None:
    check_varied(space("clipping_norm=1..5", "attention_strength=0.1,0.5"))


def test_a_cluster_is_refused_because_it_would_tell_how_many_runs_there_were() -> None:
    request = Request("keyboard-tiny", None, [], None, None, engine="ray")

    with pytest.raises(ValueError, match="--engine ray cannot search on private data"):
        tune_privately(
            request,
            score_text=Path("public.txt"),
            expected_runs=2.0,
            target_epsilon=8.0,
            rules=["mean"],
            searched={},
        )
