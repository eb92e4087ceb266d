"""A run of voices keeps its best model, and stops by its own figure as a keyboard's does."""

import json
from pathlib import Path

import pytest

from simulation.cli import main
from simulation.figures.followed import followed_perplexity
from simulation.figures.metrics import read_metrics
from tests.simulation.listening.test_run_voices import SINGERS, TOML, finished_run

# Dealt without regard to singers, there are clips that nobody holds: the validation split.
DEALT = TOML.replace('partition = "users"', 'partition = "ratio"\nratio = [1, 1]')
DEALT = DEALT.replace("speaker_size = 4", "speaker_size = 0")


def test_the_best_voice_is_kept_and_a_standstill_ends_the_run(tmp_path: Path) -> None:
    settings = DEALT.replace("keep_best = false", "keep_best = true").replace("cap = 2", "cap = 30")
    # A step this large makes a voice worse after a few rounds.
    settings = settings.replace("learning_rate = 0.05", "learning_rate = 2.0")
    settings += "\n[convergence]\npatience = 1\n"
    run, _ = finished_run(tmp_path, settings, SINGERS)

    losses = [float(row["valid_mel_l1"] or 0) for row in read_metrics(run)]
    best = losses.index(min(losses)) + 1
    assert len(losses) == best + 1 < 30
    final = json.loads((run / "final.json").read_text())
    assert (final["round"], final["model_round"]) == (len(losses), best)
    assert (run / "releases" / "best").resolve().name == f"{best:06d}"
    assert final["valid_mel_l1"] == pytest.approx(min(losses))


@pytest.mark.slow
def test_a_run_of_voices_can_end_at_a_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = finished_run(tmp_path, DEALT, SINGERS)
    again = ["run", str(run.with_name("tiny.toml")), "--data", str(data), "--workers", "1"]
    capsys.readouterr()

    command = [*again, "--until", "valid_mel_l1=1e9", "--out", str(tmp_path / "until"), "--json"]
    assert main(command) == 0

    assert json.loads(capsys.readouterr().out)["round"] == 1


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"valid_perplexity": 12.0}, 12.0),
        ({"valid_mel_l1": 0.0}, 1.0),
        ({"valid_spectral_distance": 1.0}, 2.718281828459045),
        ({"valid_mel_l1": float("nan")}, float("inf")),
        ({"valid_mel_l1": 1e4}, float("inf")),
        ({"train_loss": 1.0}, None),
    ],
)
def test_what_is_followed(figures: dict[str, float], expected: float | None) -> None:
    assert followed_perplexity(figures) == expected
