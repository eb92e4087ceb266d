"""Where progress is a bar, and where it is lines."""

import importlib.util
from types import SimpleNamespace

import pytest

from simulation.figures.metrics import Figures
from simulation.figures.progress import ProgressReport

FIGURES: Figures = {"round": 1, "train_loss": 2.5}


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_shows_a_bar_where_it_has_widgets_and_else_lines(
    has_widgets: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    # What a notebook's front end is handed, and a widget that takes what is drawn in it.
    monkeypatch.setattr("rich.jupyter.display", lambda _, text: shown.append({"text": text}))
    found = SimpleNamespace() if has_widgets else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)

    report = ProgressReport("run", last_round=2)

    assert report.is_live is has_widgets
    if not has_widgets:
        with report:
            report.round_finished(FIGURES)
        assert [one["text"] for one in shown] == ["run: round 1/2: train loss 2.500\n"]
    assert capsys.readouterr().err == ""
