from pathlib import Path

import msgspec
import pytest

from models.tasks.keystrokes import KeystrokeCounts
from models.tasks.metrics import Counts
from simulation.runs.own_figures import NoOwnFiguresError, compare, mean_figures, own_figures
from simulation.workers.fine_tuning import OwnScore


def counted(top1: int, top3: int) -> Counts:
    return Counts(token_count=10, top1_hits=top1, top3_hits=top3)


def keys(pressed: int) -> KeystrokeCounts:
    return KeystrokeCounts(keys_without=20, keys_with=pressed, keys_at_best=5)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    clients = {"a": counted(1, 3), "b": counted(2, 4), "c": Counts()}
    typed = {"a": keys(15), "b": keys(10), "c": KeystrokeCounts()}
    tuned = {client: OwnScore(counts=counted(5, 6), keys=keys(5)) for client in ("a", "b")}
    for name, content in (
        ("clients", clients),
        ("keystrokes", typed),
        ("fine-tuned", {1: tuned, 4: {"a": OwnScore(counts=counted(7, 8))}}),
    ):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(content))
    return tmp_path


def test_each_clients_figures_are_read_with_its_own_model(run: Path) -> None:
    assert own_figures(run) == {
        "accuracy": {"a": 0.1, "b": 0.2},
        "top3_recall": {"a": 0.3, "b": 0.4},
        "keystroke_savings": {"a": 0.25, "b": 0.5},
    }


def test_figures_after_fine_tuning_are_those_of_its_epochs(run: Path) -> None:
    assert own_figures(run, fine_tuned=1)["keystroke_savings"] == {"a": 0.75, "b": 0.75}
    assert own_figures(run, fine_tuned=4) == {"accuracy": {"a": 0.7}, "top3_recall": {"a": 0.8}}


def test_figures_that_are_not_there_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(NoOwnFiguresError, match="fine-tuned for 1, 4 epochs, not for 2"):
        own_figures(run, fine_tuned=2)
    (run / "clients.json").unlink()
    with pytest.raises(NoOwnFiguresError, match=r"has no clients.json: the run is not over"):
        own_figures(run)


def test_who_loses_is_counted_and_a_tie_is_no_loss() -> None:
    shared = {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5, "e": 0.5}
    own = {"a": 0.4, "b": 0.5, "c": 0.6, "d": 0.7, "e": 0.3}

    found = compare(own, shared)

    # Differences -0.2, -0.1, 0, 0.1, 0.2: their squares add up to 0.1, over four.
    assert (found.client_count, found.losing, found.winning) == (5, 2, 2)
    assert found.quartiles == pytest.approx((-0.1, 0.0, 0.1))
    assert found.mean == pytest.approx(0.0)
    assert found.spread == pytest.approx(0.025**0.5)


def test_only_the_same_clients_are_compared() -> None:
    assert compare({"a": 1.0}, {"a": 0.5}).quartiles == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="measured on the same clients, got 1 and 2"):
        compare({"a": 1.0}, {"a": 1.0, "b": 1.0})


def test_a_clients_mean_is_over_its_seeds() -> None:
    runs = [{"accuracy": {"a": 0.1, "b": 1.0}}, {"accuracy": {"a": 0.3, "b": 0.0}}]

    assert mean_figures(runs) == {"accuracy": {"a": 0.2, "b": 0.5}}
