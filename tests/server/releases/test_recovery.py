"""A process that is killed at any named moment loses nothing that was acknowledged or released.

Each test runs one part of a round in a process of its own, which kills itself there, and then
goes on where a new process would.
"""

import hashlib
import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from server.config.store import StoreSettings
from server.machine.answers import Lease
from server.records.attempts import OpenAttempt, abort_attempt, open_attempt
from server.records.contributions import Verified, contributions_of, keep_contributions
from server.records.failpoints import Failpoint, Failpoints
from server.records.inbox import Inbox
from server.records.store import Store, open_store
from server.records.tables import contributions
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.publishing import NO_PREVIOUS, list_releases, release_round
from server.releases.recovery import Recovered, recover

LeaseOf = Callable[[str], Lease]
Keep = Callable[[Lease, bytes], None]


@dataclass(frozen=True)
class Place:
    """Hold everything that lies on the disk of one coordinator."""

    root: Path
    settings: StoreSettings
    store: Store
    inbox: Inbox
    releases: ReleaseFolder

    def recover(self, now: float = 170.0) -> Recovered:
        return recover(self.store, self.inbox, self.releases, now=now)

    def sealed(self) -> list[bytes]:
        return [path.read_bytes() for path in (self.root / "updates").rglob("*.sealed")]


@pytest.fixture
def place(
    tmp_path: Path,
    store_settings: StoreSettings,
    store: Store,
    inbox: Inbox,
    releases: ReleaseFolder,
) -> Place:
    return Place(tmp_path, store_settings, store, inbox, releases)


@pytest.fixture
def second(place: Place, new_release: Callable[[int, bytes], NewRelease]) -> NewRelease:
    """Release the initial parameters and return the release of round 1, not yet made."""
    first = new_release(0, NO_PREVIOUS)
    record = release_round(place.store, place.releases, first, None, opened_at=1.0, now=1.0)
    return new_release(1, bytes.fromhex(record.parameters_sha256))


@pytest.fixture
def waiting(first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep) -> None:
    """Commit one client's update to round 1."""
    keep(lease_of("device-0001"), b"sealed")


def killed(work: Callable[..., None], *arguments: object) -> bool:
    """Run the work in a process of its own and return whether it was killed there."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=work, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode == -signal.SIGKILL


def keep_and_die(place: Place, lease: Lease, moment: Failpoint) -> None:
    failpoints = Failpoints(moment.value)
    partial = place.root / "upload.part"
    partial.write_bytes(b"sealed")
    (outcome,) = keep_contributions(
        open_store(place.settings),
        Inbox(place.root / "updates", failpoints),
        [Verified(partial, lease, bytes(16), bytes(32), 7)],
        now=120.0,
        failpoints=failpoints,
    )
    if outcome is not None:
        raise outcome


def release_and_die(place: Place, new: NewRelease, moment: Failpoint) -> None:
    release_round(
        open_store(place.settings),
        place.releases,
        new,
        None,
        opened_at=100.0,
        now=160.0,
        failpoints=Failpoints(moment.value),
    )


def test_a_file_that_has_no_row_was_not_acknowledged_and_goes(
    place: Place, first_round: OpenAttempt, lease_of: LeaseOf
) -> None:
    assert killed(keep_and_die, place, lease_of("device-0002"), Failpoint.BLOB_RENAMED)
    assert place.sealed() == [b"sealed"]

    recovered = place.recover()

    assert (recovered.open_attempt, recovered.receipts) == (first_round, ())
    assert place.sealed() == []


def test_an_update_whose_answer_was_not_sent_counts(
    place: Place, first_round: OpenAttempt, lease_of: LeaseOf
) -> None:
    lease = lease_of("device-0002")
    assert killed(keep_and_die, place, lease, Failpoint.COMMITTED)

    for _ in range(2):
        recovered = place.recover()

        assert [receipt.nonce for receipt in recovered.receipts] == [lease.nonce]
        assert recovered.open_attempt == first_round
    assert place.sealed() == [b"sealed"]


@pytest.mark.parametrize("damage", ["gone", "cut short"])
def test_an_acknowledged_update_that_is_not_whole_expires_with_a_reason(
    place: Place, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep, damage: str
) -> None:
    for client in ("device-0001", "device-0003"):
        keep(lease_of(client), b"sealed")
    path = place.inbox.path(contributions_of(place.store, 1, 0)[0].blob)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"seal")

    recovered = place.recover()

    assert [receipt.client for receipt in recovered.receipts] == ["device-0003"]
    assert place.sealed() == [b"sealed"]
    with place.store.read() as connection:
        row = connection.execute(
            select(contributions).where(contributions.c.client == "device-0001")
        ).one()
    assert row.state == "expired"
    assert row.reason == "its sealed file was missing or cut short after a restart"


def test_a_release_that_was_not_recorded_never_happened(
    place: Place, second: NewRelease, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep
) -> None:
    keep(lease_of("device-0001"), b"sealed")
    assert killed(release_and_die, place, second, Failpoint.NOISED)

    recovered = place.recover()

    assert recovered.open_attempt == first_round
    assert len(recovered.receipts) == 1
    left = sorted(path.name for path in (place.root / "releases").iterdir())
    assert left == ["000000", "latest"]


@pytest.mark.parametrize("moment", [Failpoint.RELEASE_RECORDED, Failpoint.PUBLISHED])
def test_a_release_that_was_recorded_is_published_as_it_was_and_never_made_again(
    place: Place, second: NewRelease, waiting: None, moment: Failpoint
) -> None:
    assert killed(release_and_die, place, second, moment)

    for _ in range(2):
        recovered = place.recover()

        assert (recovered.round_number, recovered.attempt, recovered.open_attempt) == (2, 0, None)
    published = list_releases(place.store)
    assert [(one.round_number, one.is_published) for one in published] == [(1, True)]
    assert place.releases.pointed("latest") == 1
    parameters = place.releases.read(1).parameters
    assert hashlib.sha256(parameters.tobytes()).digest() == published[0].parameters_sha256
    assert place.sealed() == []


def test_an_aborted_round_goes_on_with_its_next_attempt(
    place: Place, second: NewRelease, first_round: OpenAttempt
) -> None:
    abort_attempt(place.store, 1, 0, "quorum missed", now=160.0)

    recovered = place.recover()

    assert (recovered.round_number, recovered.attempt, recovered.open_attempt) == (1, 1, None)


def test_a_release_behind_an_open_round_is_published_and_the_round_goes_on(
    place: Place, second: NewRelease, first_round: OpenAttempt
) -> None:
    assert killed(release_and_die, place, second, Failpoint.RELEASE_RECORDED)
    following = OpenAttempt(2, 0, ("device-0001",), bytes(32), opened_at=161.0, deadline_ms=170_000)
    open_attempt(place.store, following)

    recovered = place.recover()

    assert recovered.open_attempt == following
    assert list_releases(place.store)[0].is_published


def test_a_new_store_begins_with_round_one(place: Place) -> None:
    recovered = place.recover()

    assert (recovered.round_number, recovered.attempt, recovered.open_attempt) == (1, 0, None)
