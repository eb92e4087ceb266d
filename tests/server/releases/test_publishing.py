import hashlib
import shutil
import stat
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from sqlalchemy import select

from models.plan.release_record import ReleaseError, decode_release_record
from models.vector.codec import CodecError
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import KeyUse, read_certificate
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose, SignatureError, verify
from privacy.noise.calibrated_settings import CentralNoise
from server.devices.clients import list_clients
from server.machine.answers import Lease
from server.records.attempts import OpenAttempt, abort_attempt, next_attempt, open_attempt
from server.records.contributions import contributions_of, expire_contribution
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.tables import attempts, contributions
from server.releases.files import NewRelease, ReleaseFolder, read_release
from server.releases.publishing import (
    NO_PREVIOUS,
    ReleaseChainError,
    add_metrics,
    last_release,
    list_releases,
    release_round,
)
from tests.moving_pointer import moving_pointer, read_both

CENTRAL = CentralNoise(
    noise_multiplier=1.0, delta=1e-6, epsilon_budget=8.0, clipping_norm=2.0, adjacency="zero-out"
)
MakeRelease = Callable[[int, bytes], NewRelease]


def release(
    store: Store, folder: ReleaseFolder, new: NewRelease, *, keep: Collection[int] | None = None
) -> bytes:
    """Release without a signer and return the digest of the parameters."""
    record = release_round(store, folder, new, None, opened_at=100.0, now=160.0, keep=keep)
    return bytes.fromhex(record.parameters_sha256)


@pytest.fixture
def initial(store: Store, releases: ReleaseFolder, new_release: MakeRelease) -> bytes:
    """Release the initial parameters and return their digest."""
    return release(store, releases, new_release(0, NO_PREVIOUS))


@pytest.fixture
def two_updates(
    inbox: Inbox,
    first_round: OpenAttempt,
    lease_of: Callable[[str], Lease],
    keep: Callable[[Lease, bytes], None],
) -> Inbox:
    """Commit two of the three clients' updates to round 1."""
    for client in ("device-0001", "device-0003"):
        keep(lease_of(client), b"sealed")
    return inbox


def test_a_release_is_read_as_it_was_written(
    store: Store, releases: ReleaseFolder, new_release: MakeRelease, initial: bytes
) -> None:
    new = new_release(1, initial)

    release(store, releases, new)

    stored = releases.read(1)
    assert np.array_equal(stored.parameters, new.parameters)
    assert (stored.plan, stored.vocabulary) == (new.plan, new.vocabulary)
    assert stored.record.round == 1
    # The digest is of the bare little-endian float32 values.
    ones = hashlib.sha256(np.full(new.parameters.size, 1, dtype="<f4").tobytes())
    assert stored.record.parameters_sha256 == ones.hexdigest()
    assert stored.record.previous_sha256 == initial.hex()
    assert releases.pointed("latest") == 1
    assert stat.S_IMODE((releases.path(1) / "parameters.bin").stat().st_mode) == 0o600


def test_the_signature_covers_every_file(
    releases: ReleaseFolder, new_release: MakeRelease, tmp_path: Path
) -> None:
    now = time.time()
    authority = CertificateAuthority.create(tmp_path / "authority", "ab" * 16)
    requests = Identity.create_requests(tmp_path / "identity", "coordinator")
    given = authority.issue_all(requests, name="coordinator", role="coordinator")
    signer = Identity.install(
        tmp_path / "identity", given, ca=authority.certificate, role="coordinator", now=now
    )

    releases.build(new_release(0, NO_PREVIOUS), signer)
    folder = releases.publish(0)

    record = (folder / "release.json").read_bytes()
    key = read_certificate((folder / "signer.der").read_bytes())
    signature = (folder / "release.sig").read_bytes()
    assert key.use is KeyUse.SIGNING
    verify(key.public_key, record, signature, purpose=Purpose.RELEASE)
    with pytest.raises(SignatureError):
        verify(key.public_key, record + b" ", signature, purpose=Purpose.RELEASE)
    files = decode_release_record(record).files
    assert set(files) == {"plan.json", "vocabulary.txt"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parameters.bin", "plan.json", "vocabulary.txt", "release.json"])
@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
def test_a_damaged_release_is_refused(
    store: Store, releases: ReleaseFolder, initial: bytes, name: str, damage: str
) -> None:
    path = releases.path(0) / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        kept = content[:-1] if damage == "cut" else content[:-2] + bytes([content[-2] ^ 1, 0x7D])
        path.write_bytes(kept)

    with pytest.raises(ReleaseError):
        releases.read(0)


def test_rounds_rise_by_one_and_name_the_release_before(
    store: Store, releases: ReleaseFolder, new_release: MakeRelease, initial: bytes
) -> None:
    first = release(store, releases, new_release(1, initial))

    for number, previous in ((1, initial), (3, first), (2, initial), (0, NO_PREVIOUS)):
        with pytest.raises(ReleaseChainError, match="must be round 2"):
            release(store, releases, new_release(number, previous))

    assert [summary.round_number for summary in list_releases(store)] == [1]
    assert next_attempt(store) == (2, 0)


def test_the_first_release_is_the_initial_one(
    store: Store, releases: ReleaseFolder, new_release: MakeRelease
) -> None:
    with pytest.raises(ReleaseChainError, match="must be round 0"):
        release(store, releases, new_release(1, NO_PREVIOUS))


def test_parameters_that_are_not_finite_are_not_released(
    store: Store, releases: ReleaseFolder, new_release: MakeRelease, initial: bytes
) -> None:
    new = new_release(1, initial)
    broken = replace(new, parameters=np.full_like(new.parameters, np.nan))

    with pytest.raises(CodecError, match="finite"):
        release(store, releases, broken)

    last = last_release(store)
    assert last is not None
    assert last.round_number == 0


def test_a_release_settles_its_updates_and_wipes_what_they_reported(
    store: Store,
    two_updates: Inbox,
    releases: ReleaseFolder,
    new_release: MakeRelease,
    initial: bytes,
) -> None:
    release(store, releases, new_release(1, initial))

    with store.read() as connection:
        rows = connection.execute(select(contributions)).all()
        attempt = connection.execute(select(attempts)).one()
    assert [(row.state, row.example_count) for row in rows] == [("aggregated", None)] * 2
    assert (attempt.state, attempt.members) == ("released", None)
    assert contributions_of(store, 1, 0) == []
    assert [client.participation_count for client in list_clients(store)] == [1, 0, 1]
    last = last_release(store)
    assert last is not None
    assert (last.contribution_count, last.duration_s, last.is_published) == (2, 60.0, True)


@pytest.mark.usefixtures("two_updates")
def test_under_a_guarantee_no_row_says_who_was_set_aside_or_sent_to_an_earlier_attempt(
    store: Store,
    releases: ReleaseFolder,
    new_release: MakeRelease,
    initial: bytes,
    lease_of: Callable[[str], Lease],
) -> None:
    expire_contribution(store, lease_of("device-0001").nonce, "not usable")
    abort_attempt(store, 1, 0, "quorum missed", now=130.0)
    again = OpenAttempt(
        round_number=1,
        attempt=1,
        members=None,
        base_sha256=initial,
        opened_at=140.0,
        deadline_ms=200_000,
    )
    open_attempt(store, again)
    new = new_release(1, initial)
    guarded = msgspec.structs.replace(new.plan, privacy=CENTRAL)

    release(store, releases, replace(new, attempt=1, plan=guarded))

    with store.read() as connection:
        assert connection.execute(select(contributions)).all() == []


def test_where_no_noise_covers_a_count_the_places_are_recorded_and_not_the_updates(
    store: Store,
    releases: ReleaseFolder,
    new_release: MakeRelease,
    initial: bytes,
    two_updates: Inbox,
) -> None:
    new = new_release(1, initial)
    guarded = msgspec.structs.replace(new.plan, privacy=CENTRAL)

    release(store, releases, replace(new, plan=guarded))

    # Two of the three clients' updates are in it.
    assert list_releases(store)[0].contribution_count == 3


def test_figures_can_follow_a_release(
    store: Store, releases: ReleaseFolder, new_release: MakeRelease, initial: bytes
) -> None:
    release(store, releases, new_release(1, initial))

    add_metrics(store, 1, {"top1_recall": 0.25})

    assert list_releases(store)[0].metrics == {"perplexity": 99.0, "top1_recall": 0.25}
    with pytest.raises(LookupError, match="round 5 was not released"):
        add_metrics(store, 5, {})


def test_old_releases_go_but_the_best_one_stays(
    store: Store, releases: ReleaseFolder, new_release: MakeRelease, initial: bytes
) -> None:
    previous = initial
    for number in range(1, 6):
        previous = release(
            store, releases, new_release(number, previous), keep=range(number - 1, number + 1)
        )
        if number == 2:
            releases.point("best", 2)

    present = [number for number in range(6) if releases.path(number).exists()]
    assert present == [2, 4, 5]
    assert (releases.pointed("best"), releases.pointed("latest")) == (2, 5)
    assert len(list_releases(store)) == 5


def test_a_release_whose_files_are_gone_is_not_published(
    releases: ReleaseFolder, new_release: MakeRelease, tmp_path: Path
) -> None:
    releases.build(new_release(1, NO_PREVIOUS), None)
    shutil.rmtree(tmp_path / "releases" / ".building-000001")

    with pytest.raises(ReleaseError, match="restore a backup"):
        releases.publish(1)


def test_a_folder_that_is_no_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="cannot be read"):
        read_release(tmp_path)


def test_what_is_read_through_a_moving_pointer_is_one_release(
    store: Store, releases: ReleaseFolder, new_release: MakeRelease, initial: bytes
) -> None:
    release(store, releases, new_release(1, initial))
    latest = releases.path(1).with_name("latest")

    with moving_pointer(latest, ("000000", "000001")):
        read = read_both(lambda: read_release(latest))

    assert {found.record.round for found in read} == {0, 1}
    assert all(set(found.parameters) == {found.record.round} for found in read)
