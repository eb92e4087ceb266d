"""Runs and sweeps through the door end as those of the command do."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sotto
from models.networks.flat_parameters import parameters_sha256
from privacy.foundation.strict_toml import parse_toml
from server.config.federation import ConfigError
from simulation.cli import main
from simulation.config.simulation import preset_text
from simulation.understanding.finished_run import NoFinishedRunError, open_run
from tests.sotto.conftest import SMALL

QUICK = ["--rounds", "2", "--set", "vocabulary.size=50", "--set", "model.vocabulary_size=50",
         "--set", "model.hidden_size=8", "--set", "data.client_count=60"]  # fmt: skip
_TIMES = {"seconds", "out"}


@pytest.mark.slow
def test_a_run_ends_in_the_figures_and_the_bits_of_the_command(
    run: sotto.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The command's two workers are processes; the door's one is this process.
    out = ["--workers", "2", "--out", str(tmp_path / "run"), "--json"]

    assert main(["run", "keyboard-tiny", *QUICK, *out]) == 0

    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    same = {name: value for name, value in told.items() if name not in _TIMES}
    assert {name: run.figures[name] for name in same} == same
    assert set(run.figures) == set(told)
    theirs, ours = open_run(tmp_path / "run"), open_run(run.folder)
    assert parameters_sha256(ours.released) == parameters_sha256(theirs.released)


@pytest.mark.slow
def test_one_worker_starts_no_process_and_gives_this_one_its_threads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(2)
    # Whatever starts a process fails.
    monkeypatch.setattr("simulation.workers.local.WorkerProcesses", None)

    sotto.simulate("keyboard-tiny", out=tmp_path / "run", **{**SMALL, "rounds": {"cap": 1}})

    assert torch.get_num_threads() == 2


@pytest.mark.slow
def test_the_tables_of_a_preset_make_its_run(
    run: sotto.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = parse_toml(preset_text("keyboard-tiny"))

    again = sotto.simulate(tables, **SMALL)
    read = sotto.simulate(tables, **SMALL)
    # A changed setting is another run, not a refusal.
    other = sotto.simulate({"extends": "keyboard-tiny", **SMALL}, seed=2)

    assert again.figures["test_perplexity"] == run.figures["test_perplexity"]
    assert again.folder.parent == Path("runs")
    assert (read.folder, read.figures) == (again.folder, again.figures)
    assert other.figures["test_perplexity"] != run.figures["test_perplexity"]


def test_figures_are_arrays_by_round(run: sotto.Run) -> None:
    rounds, values = run.series("train_loss")

    assert rounds.tolist() == [1, 2]
    lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    assert values.tolist() == [json.loads(line)["train_loss"] for line in lines]
    assert values.dtype == np.float64


def test_the_model_has_the_perplexity_of_the_run(run: sotto.Run) -> None:
    model = run.model()

    assert not model.training
    released = open_run(run.folder).released
    counted = sum(tensor.numel() for tensor in model.parameters())
    assert counted == len(released)
    assert torch.equal(torch.cat([one.flatten() for one in model.parameters()]), released)


def test_a_loaded_run_is_the_one_that_was_made(run: sotto.Run) -> None:
    loaded = sotto.Run.load(run.folder)

    assert dict(loaded.figures) == dict(run.figures)
    assert list(loaded.rounds) == list(run.rounds)


@pytest.mark.slow
def test_a_notebook_shows_figures_and_picture(run: sotto.Run) -> None:
    shown = run._repr_html_()

    assert "<td>test_perplexity</td>" in shown
    assert "data:image/png;base64,iVBOR" in shown
    assert run.plot("train_loss")._repr_png_().startswith(b"\x89PNG")
    assert repr(run).startswith(f"Run({run.folder}, 2 rounds, valid_perplexity ")


@pytest.mark.slow
def test_a_sweep_has_the_rows_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {**SMALL, "rounds": {"cap": 1}}
    over = {"aggregation.attention_strength": [0.0, 1.0]}

    table = sotto.sweep("keyboard-tiny", over, out=tmp_path / "door", **small)

    quick = [*QUICK[2:], "--rounds", "1", "--workers", "1", "--out", str(tmp_path / "command")]
    kappas = ["--set", "aggregation.attention_strength=0.0,1.0"]
    assert main(["sweep", "keyboard-tiny", *quick, *kappas]) == 0
    assert table._repr_markdown_() == capsys.readouterr().out
    assert [row.choices for row in table.rows] == [
        {"aggregation.attention_strength": "0.0"},
        {"aggregation.attention_strength": "1.0"},
    ]
    assert table.plot()._repr_png_() == table._repr_png_()


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"such as keyboard-tiny.*got 'keyboard-tini'"):
        sotto.simulate("keyboard-tini")
    with pytest.raises(ConfigError, match=r"one of digits-growing, .*vocoder-espeak"):
        sotto.simulate("xyz")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"roundz": {"cap": 1}}, "roundz"),
        ({"rounds": {"cup": 1}}, r"rounds.*cup|cup.*rounds"),
        ({"rounds": {"cap": "many"}}, r"rounds\.cap"),
        ({"seed": {"x": 1}}, "seed"),
    ],
)
def test_a_setting_that_does_not_exist_is_named(
    settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=told):
        sotto.simulate("keyboard-tiny", out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_values_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no .*absent"):
        sotto.simulate("keyboard-tiny", data=tmp_path / "absent")
    with pytest.raises(ValueError, match="workers must be >= 1, got 0"):
        sotto.simulate("keyboard-tiny", workers=0)
    with pytest.raises(ValueError, match="seed must have at least one value"):
        sotto.sweep("keyboard-tiny", {"seed": []})


def test_a_folder_without_rounds_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NoFinishedRunError, match="holds no run"):
        sotto.Run.load(tmp_path)


def test_figures_that_are_not_finite_are_told_and_not_drawn(run: sotto.Run, tmp_path: Path) -> None:
    # As a run writes NaN: null.
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "valid_perplexity": null}\n')
    lost = sotto.Run(
        folder=tmp_path,
        figures={"round": 1, "valid_perplexity": None},
        rounds=[{"round": 1, "valid_perplexity": None}],
    )

    with pytest.raises(ValueError, match="valid_perplexity is a finite number in no round"):
        lost.plot()
    with pytest.raises(ValueError, match=r"no run has the figure accuracy; choose one of .*round"):
        lost.plot("accuracy")
    assert "finite number in no round" in lost._repr_html_()
    with pytest.raises(ValueError, match="holds no metrics"):
        sotto.Run(folder=tmp_path / "none", figures={}, rounds=[]).plot()
