"""A folder that travels is the same folder there, whatever it held before."""

import sqlite3
from contextlib import closing
from pathlib import Path

from simulation.runs.travelling import Sender, put


def contents(folder: Path) -> dict[str, object]:
    return {
        path.relative_to(folder).as_posix(): str(path.readlink())
        if path.is_symlink()
        else (path.stat().st_mode & 0o777, None if path.is_dir() else path.read_bytes())
        for path in folder.rglob("*")
    }


def begun(folder: Path) -> Path:
    """Return a folder as a run has it after two rounds."""
    (folder / "releases" / "000001").mkdir(parents=True)
    (folder / "releases").chmod(0o700)
    (folder / "releases" / "000001" / "parameters.bin").write_bytes(b"\x01")
    (folder / "releases" / "latest").symlink_to("000001")
    (folder / "metrics.jsonl").write_bytes(b'{"round":1}\n')
    (folder / "noise.secret").write_bytes(b"secret")
    (folder / "noise.secret").chmod(0o600)
    return folder


def advance(folder: Path) -> None:
    """Do what a run does when a round has ended and the one before is no longer needed."""
    (folder / "releases" / "000002").mkdir()
    (folder / "releases" / "000002" / "parameters.bin").write_bytes(b"\x02")
    (folder / "releases" / "latest").unlink()
    (folder / "releases" / "latest").symlink_to("000002")
    (folder / "releases" / "000001" / "parameters.bin").unlink()
    (folder / "releases" / "000001").rmdir()
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round":2}\n')


def test_a_folder_arrives_whole_and_later_only_what_changed(tmp_path: Path) -> None:
    there, here = begun(tmp_path / "there"), tmp_path / "here"
    sender = Sender(there)

    put(sender.changes(), here)
    assert contents(here) == contents(there)
    advance(there)
    changes = sender.changes()
    put(changes, here)

    assert contents(here) == contents(there)
    assert sorted(changes.files) == ["metrics.jsonl", "releases/000002/parameters.bin"]
    assert sender.changes().files == {}


def test_what_was_there_at_the_start_is_not_sent_back(tmp_path: Path) -> None:
    there, here = begun(tmp_path / "there"), tmp_path / "here"
    put(Sender(there).changes(), here)
    sender = Sender(there)
    sender.skip()

    advance(there)
    changes = sender.changes()

    assert "noise.secret" not in changes.files
    put(changes, here)
    assert contents(here) == contents(there)


def test_a_store_arrives_with_its_log_and_without_the_log_of_the_one_before(
    tmp_path: Path,
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    stores = []
    for folder, value in ((there, 2), (here, 1)):
        folder.mkdir()
        stores.append(sqlite3.connect(folder / "store.sqlite", isolation_level=None))
        stores[-1].execute("PRAGMA journal_mode=WAL")
        stores[-1].execute("CREATE TABLE t (x)")
        stores[-1].execute("INSERT INTO t VALUES (?)", (value,))
    # Copied as a kill leaves it: the row is in the log alone.
    left = tmp_path / "left"
    left.mkdir()
    for path in here.iterdir():
        (left / path.name).write_bytes(path.read_bytes())

    put(Sender(there).changes(), left)

    with closing(sqlite3.connect(left / "store.sqlite")) as store:
        assert store.execute("SELECT x FROM t").fetchall() == [(2,)]
    for store in stores:
        store.close()
