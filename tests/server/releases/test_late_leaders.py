"""A coordinator that was stopped at any step and wakes after another took over changes nothing.

Each test lets another one take over before every single change that the first makes to the folder.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from models.plan.release_record import ReleaseError
from server.machine.answers import Lease
from server.records.folder import ServerFolder, take_parts, take_uploads
from server.records.inbox import Inbox
from server.records.tenure import LeadershipLostError, Tenure
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.publishing import NO_PREVIOUS
from server.releases.whole_folders import write_flushed

MakeRelease = Callable[[int, bytes], NewRelease]
EARLIER, LATER = 5, 6
_CHANGES = ("rename", "replace", "symlink_to", "unlink", "mkdir")


class Sleeper:
    """Let something happen before the n-th change that is made to a folder from now on."""

    def __init__(self, number: int, meanwhile: Callable[[], None]) -> None:
        self._left = number
        self._meanwhile = meanwhile
        self.has_slept = False

    def check(self) -> None:
        """Raise as a clock does that went on while the process was stopped."""
        if self.has_slept:
            raise LeadershipLostError("woke up")

    def before(self, change: Callable[..., object]) -> Callable[..., object]:
        def changed(*arguments: object, **named: object) -> object:
            self._left -= 1
            if self._left == 0 and not self.has_slept:
                self.has_slept = True
                self._meanwhile()
            return change(*arguments, **named)

        return changed

    def __enter__(self) -> "Sleeper":
        self._patched = pytest.MonkeyPatch()
        for name in _CHANGES:
            self._patched.setattr(Path, name, self.before(getattr(Path, name)))
        self._patched.setattr(shutil, "rmtree", self.before(shutil.rmtree))
        self._patched.setattr(os, "link", self.before(os.link))
        return self

    def __exit__(self, *_: object) -> None:
        self._patched.undo()


def seen(folder: Path) -> dict[str, bytes | str]:
    """Return all that a reader of releases meets: what begins with a dot is nobody's to read."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not any(part.startswith(".") for part in name.split("/")):
            if path.is_symlink():
                found[name] = str(path.readlink())
            elif path.is_file():
                found[name] = path.read_bytes()
    return found


def until_it_ends(
    root: Path,
    prepare: Callable[[ReleaseFolder], None],
    late: Callable[[ReleaseFolder], object],
    take_over: Callable[[ReleaseFolder], object],
) -> Iterator[int]:
    """Do ``late`` once for each of its changes, with a takeover before that one."""
    for number in range(1, 100):
        folder = root / str(number)
        prepare(ReleaseFolder(folder, Tenure(EARLIER)))
        left: dict[str, bytes | str] = {}

        def meanwhile(folder: Path = folder, left: dict[str, bytes | str] = left) -> None:
            take_over(ReleaseFolder(folder, Tenure(LATER)))
            left |= seen(folder)

        with Sleeper(number, meanwhile) as sleeper:
            try:
                late(ReleaseFolder(folder, Tenure(EARLIER, sleeper.check)))
            except (LeadershipLostError, FileNotFoundError, ReleaseError):
                assert sleeper.has_slept
        if not sleeper.has_slept:
            return
        assert seen(folder) == left, number
        yield number


@pytest.fixture
def first(new_release: MakeRelease) -> NewRelease:
    return new_release(1, NO_PREVIOUS)


@pytest.fixture
def recover(new_release: MakeRelease) -> Callable[[ReleaseFolder], None]:
    """Return what whoever takes over does with a recorded release, and then with the next."""

    def take_over(releases: ReleaseFolder) -> None:
        releases.repair_rewriting()
        releases.discard_unpublished(keep=1, term=EARLIER)
        releases.publish(1, EARLIER)
        releases.build(new_release(2, NO_PREVIOUS), None)
        releases.publish(2)
        releases.point("best", 2)

    return take_over


def test_a_late_publication_moves_nothing(
    tmp_path: Path, first: NewRelease, recover: Callable[[ReleaseFolder], None]
) -> None:
    def late(releases: ReleaseFolder) -> None:
        releases.publish(1)
        releases.point("best", 1)
        releases.prune(range(1, 2))

    steps = list(until_it_ends(tmp_path, lambda made: _built(made, first), late, recover))

    assert len(steps) >= 6


def test_a_late_replacement_of_a_state_replaces_nothing(
    tmp_path: Path, first: NewRelease, recover: Callable[[ReleaseFolder], None]
) -> None:
    def publish(releases: ReleaseFolder) -> None:
        releases.build(first, None)
        releases.publish(1)

    def late(releases: ReleaseFolder) -> None:
        building = releases.begin_rewriting(1)
        for path in releases.path(1).iterdir():
            os.link(path, building / path.name)
        write_flushed(building, {"note": b"late"})
        releases.end_rewriting(1)

    steps = list(until_it_ends(tmp_path, publish, late, recover))

    # Up to the rename that makes it count it is undone, afterwards finished: never half.
    assert len(steps) >= 8


def test_a_late_round_is_built_beside_the_one_that_counts(
    tmp_path: Path, first: NewRelease, new_release: MakeRelease
) -> None:
    def take_over(releases: ReleaseFolder) -> None:
        releases.discard_unpublished(keep=None)
        releases.build(new_release(1, NO_PREVIOUS), None)
        releases.publish(1)

    steps = list(
        until_it_ends(
            tmp_path, lambda _: None, lambda releases: releases.build(first, None), take_over
        )
    )

    assert len(steps) >= 2


def test_a_late_recovery_deletes_nothing_that_was_built_or_kept_since(
    tmp_path: Path, first: NewRelease, lease_of: Callable[[str], Lease]
) -> None:
    early, late = Inbox(tmp_path / "updates", tenure=Tenure(EARLIER)), Tenure(LATER)
    (tmp_path / "upload.part").write_bytes(b"acknowledged")
    blob = Inbox(tmp_path / "updates", tenure=late).keep(
        tmp_path / "upload.part", lease_of("device-0001"), bytes(16)
    )
    releases = ReleaseFolder(tmp_path / "releases", late)
    releases.build(first, None)

    assert early.clear_all_but(()) == 0
    ReleaseFolder(tmp_path / "releases", Tenure(EARLIER)).discard_unpublished(keep=None)

    assert early.path(blob).read_bytes() == b"acknowledged"
    assert releases.publish(1).is_dir()


def test_uploads_and_parts_go_on_where_their_former_writer_does_not_find_them(
    tmp_path: Path,
) -> None:
    root = ServerFolder(tmp_path)
    before = take_uploads(root, Tenure(EARLIER))
    upload = before / "aa.bb.part"
    upload.write_bytes(b"half")
    parts = take_parts(root, Tenure(EARLIER))
    parts.mkdir(parents=True)

    after = take_uploads(root, Tenure(LATER))
    now = take_parts(root, Tenure(LATER))

    assert (after / "aa.bb.part").read_bytes() == b"half"
    assert not before.exists()
    assert not parts.exists()
    assert now != parts
    # One machine alone has them where they always were.
    assert take_uploads(root, Tenure(0)) == root.uploads
    assert take_parts(root, Tenure(0)) == root.parts


def _built(releases: ReleaseFolder, new: NewRelease) -> None:
    releases.build(new, None)
