from pathlib import Path

from edge_client.folder.personal_folder import PersonalFolder

ONE, TWO = b"1" * 16, b"2" * 16


def test_a_state_counts_once_its_own_update_does(tmp_path: Path) -> None:
    folder = PersonalFolder(tmp_path / "personal")
    folder.waiting(ONE).write_bytes(b"first")
    assert not folder.current.exists()

    folder.accept(ONE)
    folder.waiting(TWO).write_bytes(b"second")

    assert folder.current.read_bytes() == b"first"
    assert not folder.waits_for(ONE)
    assert folder.waits_for(TWO)
    assert folder.current.parent.stat().st_mode & 0o077 == 0


def test_accepting_twice_or_another_update_leaves_the_state_as_it_is(tmp_path: Path) -> None:
    folder = PersonalFolder(tmp_path / "personal")
    folder.waiting(ONE).write_bytes(b"first")
    folder.accept(ONE)

    folder.accept(ONE)
    folder.waiting(TWO).write_bytes(b"second")
    folder.accept(b"3" * 16)

    assert folder.current.read_bytes() == b"first"
    assert not folder.waits_for(TWO)


def test_what_waits_is_dropped_and_what_counts_stays(tmp_path: Path) -> None:
    folder = PersonalFolder(tmp_path / "personal")
    folder.drop()  # Nothing is there yet.
    folder.waiting(ONE).write_bytes(b"first")
    folder.accept(ONE)
    folder.waiting(TWO).write_bytes(b"second")

    folder.drop()

    assert [path.name for path in folder.current.parent.iterdir()] == ["current.state"]
