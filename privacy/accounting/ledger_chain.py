"""A run's privacy events, chained so that no entry can be changed, dropped or moved unseen.

Each entry's digest is over the digest before it, the run, the round, the event and the UTC time;
the chain begins at the run's own name (32 hex digits), so the ledger of another run never fits. A
chain by itself cannot show that its newest entries were cut off: compare the head with one kept
elsewhere, as in a signed release.

A clock that was set back is recorded, not refused: privacy was spent whatever the clock says, and
an entry that could not be written would hide it. The chain, not the clock, is the order.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from privacy.accounting.events import EventError, PrivacyEvent, canonical_bytes, read_event

_START = b"sotto ledger 1\0"
_ENTRY = b"sotto ledger entry 1\0"


class LedgerError(Exception):
    """Raised when a ledger cannot be trusted; the text names the first entry that breaks it."""


class LedgerOfAnotherRunError(LedgerError):
    """Raised when a ledger belongs to another run than the one asked about."""


class LedgerEntry(NamedTuple):
    """One entry as it is stored.

    Attributes:
        sequence: Place in the chain, counted from 1.
        round_number: Round of the release, at least 0.
        event: Canonical bytes of the event; see `privacy.accounting.events`.
        recorded_ms: Milliseconds since 1970 UTC by the coordinator's clock.
        clock_set_back_ms: How far that clock stood before the entry before this one; 0 as a rule.
        previous_sha256: Digest of the entry before, 32 bytes; of the run's name for the first.
        sha256: Digest of this entry, 32 bytes: the head of the chain up to here.
    """

    sequence: int
    round_number: int
    event: bytes
    recorded_ms: int
    clock_set_back_ms: int
    previous_sha256: bytes
    sha256: bytes


class NotedHead(NamedTuple):
    """The digest, 32 bytes, of an entry that paid for a round, as it is kept beside the ledger."""

    round_number: int
    sha256: bytes


def first_head(run: str) -> bytes:
    """Return the digest that the first entry of a run's ledger follows, 32 bytes."""
    return hashlib.sha256(_START + bytes.fromhex(run)).digest()


def next_entry(
    last: LedgerEntry | None,
    *,
    run: str,
    round_number: int,
    event: PrivacyEvent,
    now_ms: int,
) -> LedgerEntry:
    """Return the entry that follows ``last``, the run's newest; None if it has none yet.

    ``now_ms`` may lie before the last entry's time. Raises ValueError if ``round_number`` or
    ``now_ms`` is negative.
    """
    if round_number < 0 or now_ms < 0:
        raise ValueError(f"round_number and now_ms must be >= 0, got {round_number} and {now_ms}")
    unsigned = LedgerEntry(
        sequence=1 if last is None else last.sequence + 1,
        round_number=round_number,
        event=canonical_bytes(event),
        recorded_ms=now_ms,
        clock_set_back_ms=_set_back(last, now_ms),
        previous_sha256=first_head(run) if last is None else last.sha256,
        sha256=b"",
    )
    return unsigned._replace(sha256=_digest(unsigned, run))


def verify_chain(
    entries: Iterable[LedgerEntry], *, run: str, head: str | None = None
) -> list[PrivacyEvent]:
    """Return the events of a run's whole ledger, in order, after checking every entry.

    ``head`` is the digest that the newest entry must have, 64 hex digits, if one was kept
    elsewhere: only that shows entries that were cut off at the end.

    Raises:
        LedgerOfAnotherRunError: If the first entry does not begin this run's chain.
        LedgerError: If an entry was changed, dropped, added or moved.
    """
    events: list[PrivacyEvent] = []
    last: LedgerEntry | None = None
    for entry in entries:
        check_types(entry)
        _check_place(entry, last, run)
        events.append(_check_content(entry, last, run))
        last = entry
    newest = (first_head(run) if last is None else last.sha256).hex()
    if head is not None and newest != head.lower():
        raise LedgerError(
            f"ledger ends with entry {len(events)}, head {newest}, and must end with head {head}: "
            "entries were cut off or added"
        )
    return events


def check_types(row: tuple[object, ...]) -> LedgerEntry:
    """Return a row of a ledger as an entry; LedgerError if a field is missing or of another type.

    SQLite keeps whatever type was written: an edited row may hold text for bytes, or nothing.
    """
    try:
        return msgspec.convert(row, LedgerEntry, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise LedgerError(f"ledger entry {row[0]} was changed: {error}") from None


def check_end(entries: Sequence[LedgerEntry], noted: Iterable[NotedHead]) -> None:
    """Raise LedgerError unless a whole ledger holds every entry that was noted elsewhere."""
    held = {entry.sha256 for entry in entries}
    lacking = sorted({head.round_number for head in noted if head.sha256 not in held})
    if not lacking:
        return
    rounds = f"round {lacking[0]}"
    if len(lacking) > 1:
        rounds = f"rounds {lacking[0]} to {lacking[-1]}"
    raise LedgerError(
        f"the ledger ends with entry {len(entries)} and lacks the newest of {rounds}, which is not "
        "counted: its rows were deleted, or the store is older than its releases. Put back a store "
        "that holds them; if there is none, found a new run with start_from naming the newest "
        "release: for one person, its epsilon and delta come on top of what that release says"
    )


def head_of(entries: list[LedgerEntry], run: str) -> bytes:
    """Return the digest of the newest entry, or the run's first head where there is none yet."""
    return entries[-1].sha256 if entries else first_head(run)


def _check_place(entry: LedgerEntry, last: LedgerEntry | None, run: str) -> None:
    expected = 1 if last is None else last.sequence + 1
    if entry.sequence != expected:
        raise LedgerError(
            f"ledger entry {expected} is missing or was moved: entry {entry.sequence} stands there"
        )
    if last is None and entry.previous_sha256 != first_head(run):
        raise LedgerOfAnotherRunError(
            f"ledger entry 1 does not begin the ledger of run {run}: it belongs to another run"
        )
    if last is not None and entry.previous_sha256 != last.sha256:
        raise LedgerError(f"ledger entry {expected} does not follow entry {last.sequence}")


def _check_content(entry: LedgerEntry, last: LedgerEntry | None, run: str) -> PrivacyEvent:
    try:
        changed = entry.sha256 != _digest(entry, run)
        event = read_event(entry.event)
    except (struct.error, EventError) as error:
        raise LedgerError(f"ledger entry {entry.sequence} was changed: {error}") from None
    if changed:
        raise LedgerError(
            f"ledger entry {entry.sequence} was changed: its digest does not fit what it holds"
        )
    if entry.clock_set_back_ms != _set_back(last, entry.recorded_ms):
        raise LedgerError(
            f"ledger entry {entry.sequence} must say by how much the clock was set back"
        )
    return event


def _set_back(last: LedgerEntry | None, now_ms: int) -> int:
    return 0 if last is None else max(0, last.recorded_ms - now_ms)


def _digest(entry: LedgerEntry, run: str) -> bytes:
    numbers = struct.pack(
        ">QQQQ",
        entry.sequence,
        entry.round_number,
        entry.recorded_ms,
        entry.clock_set_back_ms,
    )
    # Every part before the event has a fixed size, so no two entries give the same bytes.
    whole = _ENTRY + entry.previous_sha256 + bytes.fromhex(run) + numbers + entry.event
    return hashlib.sha256(whole).digest()
