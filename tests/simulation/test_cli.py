import json
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.cli import main

QUICK = ["--rounds", "2", "--workers", "1", "--set", "vocabulary.size=50",
         "--set", "model.vocabulary_size=50", "--set", "data.client_count=60"]  # fmt: skip


@pytest.mark.slow
def test_a_preset_runs_and_reports_one_flat_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["run", "keyboard-tiny", *QUICK, "--out", str(tmp_path / "run"), "--json"])

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert status == 0
    assert figures["round"] == 2
    assert figures["clients"] == 60
    assert all(isinstance(value, int | float | str) for value in figures.values())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2]


@pytest.mark.slow
def test_a_method_takes_the_place_of_the_presets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run"), "--seed", "5", "--json"]

    status = main(["run", "keyboard-tiny", *QUICK, "--method", "ditto", *out])

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert status == 0
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["configuration"]["personalisation"] == {"method": "ditto"}
    assert described["seed"] == 5
    assert figures["seconds"] > 0
    # Whole models go to the cohort and come back, whatever stays with the clients.
    assert figures["bytes_down"] == figures["bytes_up"] > 0
    assert list((tmp_path / "run" / "states").glob("device-*/*.bin"))


@pytest.mark.slow
def test_a_growing_run_tells_at_its_start_what_growth_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--rounds", "1", "--workers", "1", "--out", str(tmp_path / "run")]

    assert main(["run", "digits-growing", *out]) == 0

    told = " ".join(capsys.readouterr().err.split())
    assert "growth: 4 layers in 4 stages over 40 rounds; a device in all of them moves " in told


@pytest.mark.parametrize("rates", ["0.1", "0.5,0.1"])
def test_a_quorum_larger_than_the_cohort_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rates: str
) -> None:
    # A tenth of 20 clients are 2; the preset's quorum is 5.
    command = "sweep" if "," in rates else "run"
    out = tmp_path / "out"

    status = main(
        [command, "fedtp-digits", "--set", f"rounds.participation_rate={rates}", "--out", str(out)]
    )

    told = capsys.readouterr().err
    assert status == 1
    assert "rounds.quorum must be <= the cohort, got 5" in told
    assert "participation_rate 0.1 of 20 clients makes a cohort of 2; lower rounds.quorum" in told
    assert not out.exists()


def test_a_method_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "keyboard-tiny", "--method", "fedtp2"]) == 1
    assert "method must be one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [["run", "keyboard-tiny"], ["novel", "RUN"], ["listen", "--copy-synthesis", "espeak"]],
    ids=lambda command: command[0],
)
def test_a_data_set_that_is_not_there_is_refused_even_where_none_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    missing = tmp_path / "missing"

    with pytest.raises(SystemExit) as exited:
        main([*command, "--data", str(missing)])

    assert exited.value.code == 2
    assert f"argument --data: there is no {missing}" in capsys.readouterr().err


@pytest.mark.slow
def test_images_are_trained_together_to_the_same_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["--rounds", "1", "--workers", "1", "--set", "training.local_epochs=1", "--json"]

    figures = []
    for together in ("1", "10"):
        out = ["--together", together, "--out", str(tmp_path / together)]
        assert main(["run", "fedtp-digits", *quick, *out]) == 0
        figures.append(json.loads(capsys.readouterr().out.splitlines()[-1]))

    losses = [figure["test_perplexity"] for figure in figures]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert figures[1]["tokens"] == figures[0]["tokens"]


def test_text_is_not_trained_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run")]

    assert main(["run", "keyboard-tiny", *QUICK, "--together", "4", *out]) == 1
    assert 'model.family "gru_lm" reads text' in capsys.readouterr().err


def test_a_device_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    out = ["--out", str(tmp_path / "run")]

    assert main(["run", "keyboard-tiny", *QUICK, "--device", "cuda", *out]) == 1
    assert "device cuda was asked for, but torch finds none" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sweep_runs_every_value_and_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--set", "aggregation.attention_strength=0,0.5", "--seeds", "1,2"]
    quick = [*QUICK, "--rounds", "1"]
    command = ["sweep", "keyboard-tiny", *quick, *arguments, "--out", str(tmp_path)]

    assert main(command) == 0
    table = capsys.readouterr().out
    assert main(command) == 0

    # Two settings, two seeds each; the second call finds them done and says the same.
    assert capsys.readouterr().out == table
    assert len(list(tmp_path.glob("*/seed-*/final.json"))) == 4
    assert len(table.splitlines()) == 4
    assert (tmp_path / "sweep.png").exists()


def test_a_sweep_of_images_is_judged_by_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--rounds", "1", "--set", "training.local_epochs=1", "--set", "data.image_share=0.2"]

    assert main(["sweep", "fedtp-digits", *few, "--method", "fedavg", "--out", str(tmp_path)]) == 0

    final = json.loads(next(tmp_path.glob("*/seed-1/final.json")).read_text())
    heading, _, row = capsys.readouterr().out.splitlines()
    assert "accuracy" in heading
    assert f"{final['accuracy']:.4g}" in row


@pytest.mark.slow
def test_rounds_to_a_threshold_are_swept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--set", "rounds.cohort_size=2,3", "--until", "valid_perplexity=1e9"]

    status = main(["sweep", "keyboard-tiny", *QUICK, *arguments, "--out", str(tmp_path), "--json"])

    rows = json.loads(capsys.readouterr().out)
    assert status == 0
    assert [row["mean"] for row in rows] == [1.0, 1.0]


def test_runs_are_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"round":1,"valid_perplexity":9.0}\n')
    png = tmp_path / "plot.png"

    assert main(["plot", str(tmp_path / "run"), "--png", str(png)]) == 0
    assert png.exists()
    assert main(["plot", str(tmp_path / "nothing"), "--png", str(png)]) == 1
    assert "holds no metrics" in capsys.readouterr().err


def test_presets_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    assert "keyboard-tiny" in capsys.readouterr().out
    assert main(["presets", "keyboard-tiny"]) == 0
    assert 'dataset = "manual"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "keyboard-tin"], "presets` lists, such as keyboard-tiny"),
        (["run", "nowhere.toml"], "cannot read nowhere.toml"),
        (["run", "keyboard-tiny", "--set", "rounds.cap=x"], "Expected `int`, got `str`"),
        (["run", "keyboard-tiny", "--set", "rounds"], "a setting must read like"),
        (["run", "keyboard-tiny", "--until", "perplexity"], "a threshold must read like"),
        (["run", "fedatt-ptb"], "data"),
    ],
)
def test_a_failure_is_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SOTTO_DATA", raising=False)

    assert main(arguments) == 1

    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_reading_a_command_line_loads_no_torch() -> None:
    program = "import sys, simulation.cli; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-P", "-c", program], check=False).returncode == 0


def test_wrong_usage_has_its_own_status() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["run"])

    assert stopped.value.code == 2
