import hashlib
from pathlib import Path

import pytest

from edge_client.folder.held_release import HeldRelease, HeldReleaseError

FIRST, SECOND = bytes(range(40)), bytes(range(40, 80))


def named(parameters: bytes) -> bytes:
    return hashlib.sha256(parameters).digest()


def holding(folder: Path, parameters: bytes = FIRST) -> HeldRelease:
    held = HeldRelease(folder / "held")
    held.keep(named(parameters), parameters)
    return held


def file_of(folder: Path, parameters: bytes = FIRST) -> Path:
    return folder / "held" / f"{named(parameters).hex()}.release"


def test_a_release_survives_a_restart_and_is_its_owners_alone(tmp_path: Path) -> None:
    holding(tmp_path)

    after_restart = HeldRelease(tmp_path / "held")

    assert after_restart.sha256 == named(FIRST)
    assert after_restart.read(named(FIRST)) == FIRST
    assert (tmp_path / "held").stat().st_mode & 0o777 == 0o700
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_device_that_received_nothing_holds_nothing(tmp_path: Path) -> None:
    held = HeldRelease(tmp_path / "held")

    assert held.sha256 is None
    with pytest.raises(HeldReleaseError, match="is gone"):
        held.read(named(FIRST))


def test_the_next_release_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    held = holding(tmp_path)

    held.keep(named(SECOND), SECOND)

    assert held.sha256 == named(SECOND)
    assert held.read(named(SECOND)) == SECOND
    assert list((tmp_path / "held").iterdir()) == [file_of(tmp_path, SECOND)]


@pytest.mark.parametrize("damaged", [FIRST[:-1], FIRST[::-1], b""], ids=["cut", "other", "empty"])
def test_a_damaged_release_is_refused_and_held_no_more(tmp_path: Path, damaged: bytes) -> None:
    held = holding(tmp_path)
    file_of(tmp_path).write_bytes(damaged)

    with pytest.raises(HeldReleaseError, match="is damaged; a whole one is fetched next"):
        held.read(named(FIRST))

    assert held.sha256 is None
    assert list((tmp_path / "held").iterdir()) == []


def test_a_release_that_is_dropped_is_gone(tmp_path: Path) -> None:
    held = holding(tmp_path)

    held.drop()

    assert held.sha256 is None
    assert list((tmp_path / "held").iterdir()) == []


@pytest.mark.parametrize("name", ["no digest", named(FIRST).hex()[:-2], named(SECOND).hex()])
def test_where_names_leave_a_doubt_nothing_is_held(tmp_path: Path, name: str) -> None:
    held = holding(tmp_path)
    # The last one lies beside the first, as a kill between writing and deleting leaves them.
    if len(name) < len(named(FIRST).hex()):
        file_of(tmp_path).unlink()

    (tmp_path / "held" / f"{name}.release").write_bytes(FIRST)

    assert held.sha256 is None
