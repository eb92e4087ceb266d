import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from server.devices.clients import revoke_client
from server.machine.answers import Lease, Receipt
from server.records.attempts import (
    OpenAttempt,
    abort_attempt,
    current_attempt,
    next_attempt,
    open_attempt,
)
from server.records.contributions import (
    ContributionError,
    contributions_of,
    expire_contribution,
    find_receipt,
)
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.tables import attempts, contributions
from tests.server.both_stores import on_both_stores

MESSAGE = bytes(16)
ONE, TWO, THREE = "device-0001", "device-0002", "device-0003"
LeaseOf = Callable[[str], Lease]
Keep = Callable[[Lease, bytes], None]


@on_both_stores
def test_what_is_kept_is_found_sealed_as_it_came_and_in_slot_order(
    store: Store, inbox: Inbox, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep
) -> None:
    for client in (THREE, ONE):
        keep(lease_of(client), client.encode())

    held = contributions_of(store, 1, 0)

    assert [contribution.receipt.client for contribution in held] == [ONE, THREE]
    assert [inbox.path(contribution.blob).read_bytes() for contribution in held] == [
        b"device-0001",
        b"device-0003",
    ]
    assert [contribution.example_count for contribution in held] == [7, 7]
    assert stat.S_IMODE(inbox.path(held[0].blob).parent.stat().st_mode) == 0o700
    assert find_receipt(store, ONE, lease_of(ONE).nonce) == Receipt(
        nonce=lease_of(ONE).nonce, client=ONE, round_number=1, attempt=0, slot=0, message_id=MESSAGE
    )
    assert find_receipt(store, TWO, lease_of(ONE).nonce) is None


@on_both_stores
def test_a_client_counts_once_a_round_whatever_asks(
    store: Store, inbox: Inbox, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep
) -> None:
    keep(lease_of(ONE), b"first")
    other_lease = replace(lease_of(ONE), nonce=bytes(16), slot=2)

    with pytest.raises(ContributionError, match="contributed to round 1 before"):
        keep(other_lease, b"second")

    held = contributions_of(store, 1, 0)
    assert [inbox.path(one.blob).read_bytes() for one in held] == [b"first"]


@on_both_stores
def test_a_slot_counts_once_a_round_and_the_first_file_stays(
    store: Store, inbox: Inbox, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep
) -> None:
    keep(lease_of(ONE), b"first")
    same_slot = replace(lease_of(TWO), slot=0)

    with pytest.raises(ContributionError, match="its slot has contributed"):
        keep(same_slot, b"second")

    held = contributions_of(store, 1, 0)
    assert [inbox.path(one.blob).read_bytes() for one in held] == [b"first"]


@on_both_stores
def test_nothing_is_acknowledged_after_the_attempt_or_for_a_revoked_client(
    store: Store, inbox: Inbox, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep
) -> None:
    revoke_client(store, ONE, now=110.0)
    with pytest.raises(ContributionError, match="device-0001 is not an enrolled client"):
        keep(lease_of(ONE), b"x")

    abort_attempt(store, 1, 0, "quorum missed", now=170.0)
    with pytest.raises(ContributionError, match="the attempt has ended"):
        keep(lease_of(TWO), b"x")

    assert contributions_of(store, 1, 0) == []


@on_both_stores
def test_an_aborted_attempt_expires_its_updates_with_the_reason_and_wipes_the_rest(
    store: Store, inbox: Inbox, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep
) -> None:
    keep(lease_of(ONE), b"x")

    abort_attempt(store, 1, 0, "quorum missed", now=170.0)
    inbox.clear(1, 0)

    with store.read() as connection:
        row = connection.execute(select(contributions)).one()
        attempt = connection.execute(select(attempts)).one()
    assert (row.state, row.reason, row.example_count) == ("expired", "quorum missed", None)
    assert (attempt.state, attempt.members, attempt.ended_at) == ("aborted", None, 170.0)
    assert not inbox.path(row.blob).exists()
    assert find_receipt(store, ONE, lease_of(ONE).nonce) is not None
    assert (current_attempt(store), next_attempt(store)) == (None, (1, 1))


@on_both_stores
def test_after_an_abort_the_client_may_contribute_to_the_next_attempt(
    store: Store, inbox: Inbox, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep
) -> None:
    keep(lease_of(ONE), b"x")
    abort_attempt(store, 1, 0, "quorum missed", now=170.0)
    open_attempt(store, replace(first_round, attempt=1))

    keep(replace(lease_of(ONE), nonce=bytes(16), attempt=1), b"y")

    assert len(contributions_of(store, 1, 1)) == 1


@on_both_stores
def test_an_update_that_expired_may_be_sent_again_under_the_same_lease(
    store: Store, inbox: Inbox, first_round: OpenAttempt, lease_of: LeaseOf, keep: Keep
) -> None:
    keep(lease_of(ONE), b"x")

    expire_contribution(store, lease_of(ONE).nonce, "unreadable")

    assert contributions_of(store, 1, 0) == []
    assert find_receipt(store, ONE, lease_of(ONE).nonce) is None
    keep(lease_of(ONE), b"y")
    assert len(contributions_of(store, 1, 0)) == 1
    assert find_receipt(store, ONE, lease_of(ONE).nonce) is not None


@on_both_stores
def test_the_attempt_is_found_as_it_was_opened(store: Store, first_round: OpenAttempt) -> None:
    assert current_attempt(store) == first_round


@on_both_stores
def test_a_first_come_attempt_has_no_members(store: Store, enrolled: tuple[str, ...]) -> None:
    opened = OpenAttempt(1, 0, None, bytes(32), opened_at=1.0, deadline_ms=2)

    open_attempt(store, opened)

    assert current_attempt(store) == opened


def test_files_without_a_row_are_deleted_and_the_others_stay(
    inbox: Inbox, lease_of: LeaseOf, tmp_path: Path
) -> None:
    def blob(content: bytes, lease: Lease) -> str:
        (tmp_path / "upload.part").write_bytes(content)
        return inbox.keep(tmp_path / "upload.part", lease, MESSAGE)

    known = blob(b"known", lease_of(ONE))
    orphan = blob(b"orphan", lease_of(TWO))
    old = blob(b"old", replace(lease_of(TWO), round_number=9))

    assert inbox.clear_all_but({known}) == 2

    assert inbox.path(known).read_bytes() == b"known"
    assert not inbox.path(orphan).exists()
    assert not inbox.path(old).parent.exists()
