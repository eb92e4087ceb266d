from pathlib import Path

import pytest

from simulation.figures.plots import plot_bars, plot_runs, plot_table

PNG = b"\x89PNG\r\n\x1a\n"


def test_runs_are_drawn_as_png(tmp_path: Path) -> None:
    runs = {"mean": [{"round": 1, "valid_perplexity": 900.0}, {"round": 2, "train_loss": 6.0}]}

    plot_runs(runs, tmp_path / "runs.png", levels={"bigram": 200.0})

    assert (tmp_path / "runs.png").read_bytes().startswith(PNG)


def test_a_figure_that_no_run_has_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"speed; choose one of \['round', 'train_loss'\]"):
        plot_runs({"mean": [{"round": 1, "train_loss": 6.0}]}, tmp_path / "p.png", figure="speed")


def test_tables_and_bars_are_drawn_as_png(tmp_path: Path) -> None:
    plot_table(
        {"mean": [(0.5, 200.0, 2.0), (0.1, 210.0, 1.0)]},
        tmp_path / "table.png",
        setting="participation_rate",
        figure="test_perplexity",
    )
    plot_bars({"mean": (200.0, 2.0)}, tmp_path / "bars.png", figure="test_perplexity")

    assert (tmp_path / "table.png").read_bytes().startswith(PNG)
    assert (tmp_path / "bars.png").read_bytes().startswith(PNG)
