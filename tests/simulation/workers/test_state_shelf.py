from pathlib import Path

import pytest

from simulation.workers.state_shelf import StateShelf


def shelf_with(folder: Path, *rounds: int, client: str = "a") -> StateShelf:
    shelf = StateShelf(folder)
    for number in rounds:
        shelf.place(client, number).write_bytes(b"state")
    return shelf


def rounds(folder: Path, client: str = "a") -> list[int]:
    return sorted(int(path.stem) for path in (folder / client).glob("*.bin"))


def test_a_round_starts_from_the_newest_state_before_it(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, 2, 5)

    found = [shelf.newest("a", number) for number in (1, 2, 4, 5, 9)]

    assert [path and path.stem for path in found] == [None, "000002", "000002", "000005", "000005"]
    assert shelf.newest("never-drawn", 9) is None


def test_resuming_forgets_what_will_be_run_again(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, 2, 5, 6)

    shelf.rewind(5)

    assert rounds(tmp_path) == [2, 5]


def test_what_the_best_and_the_last_model_go_with_is_kept(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, 1, 2, 5, 7)
    shelf_with(tmp_path, 1, client="b")

    shelf.flush(7)
    shelf.prune({4, 7})

    # Round 4's model goes with the state of round 2; b has had one state all along.
    assert rounds(tmp_path) == [2, 7]
    assert rounds(tmp_path, "b") == [1]


@pytest.mark.slow
def test_a_file_that_a_killed_writer_left_is_no_state(tmp_path: Path) -> None:
    shelf = shelf_with(tmp_path, 1)
    (tmp_path / "a" / ".000002.bin.1a2b").write_bytes(b"half")

    path = shelf.newest("a", 9)

    assert path is not None
    assert path.stem == "000001"
