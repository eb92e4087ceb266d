"""What a helper has answered: one SQLite file, written durably before an answer is told.

A question (round, attempt, group) has one answer. The same set again gets that answer, whatever the
process went through in between; another set is refused. Kept beside the answers: the lease nonces
of the newest attempt (older attempts are refused whole) with a digest of each of its devices'
names, so that nobody is in two sums of it, and a digest of every seed that was ever used. Whoever
reads the store and guesses a name can tell whether it was in the newest attempt, and in no other.
All of it blocks.
"""

import hashlib
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privacy.foundation.atomic_files import sync_folder
from privacy.identities.party import Identity
from privacy.masking.helper_answer import (
    Answer,
    AnswerError,
    SignedAnswer,
    check_list,
    first_head,
    sign_answer,
)
from protos.helper_refusals import HelperCode
from server.helper.refusal import Refusal

if TYPE_CHECKING:
    # It loads numpy, which looking at a list does not need.
    from privacy.masking.mask_form import MaskForm

_FORMAT = 1
_BUSY_MS = 30_000
_DAY_MS = 24 * 3600 * 1000
# Half of a digest: a store of 10,000 rounds of 1,000 devices stays below a gigabyte, and two seeds
# of 256 bits share it with a chance of 2^-80 among as many.
_SEED_DIGEST_BYTES = 16
_SEED_TAG = b"sotto used seed 1\0"
_DEVICE_TAG = b"sotto summed device 1\0"
_ATTEMPT = struct.Struct("!16sII")
_TABLES = """
CREATE TABLE answers (
    sequence INTEGER PRIMARY KEY,
    round_number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    part INTEGER NOT NULL,
    set_sha256 BLOB NOT NULL,
    recorded_ms INTEGER NOT NULL,
    statement BLOB NOT NULL,
    signature BLOB NOT NULL,
    certificate BLOB NOT NULL,
    UNIQUE (round_number, attempt, part)
);
CREATE TABLE leases (used BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE devices (used BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE seeds (used BLOB PRIMARY KEY) WITHOUT ROWID;
"""
_SIGNED = "statement, signature, certificate"


class AnswerStoreError(RuntimeError):
    """Raised when the store cannot be opened or used; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a coordinator asks the sum of.

    Attributes:
        run: Identifier of the run, 16 bytes.
        group: Group of the cohort, from 0.
        form: Vector and attempt.
        set_sha256: Digest of the set, 32 bytes.
        seeds: Seed by slot; never kept, and not shown.
        nonces: Lease nonces of the set.
        devices: Names of the set's devices; not kept as they are.
    """

    run: bytes
    round_number: int
    group: int
    form: "MaskForm"
    set_sha256: bytes
    seeds: dict[int, bytes]
    nonces: frozenset[bytes]
    devices: frozenset[str]

    def __repr__(self) -> str:
        return f"Question(round {self.round_number}, {self.form}, group {self.group})"


class Answers:
    """The durable list of one helper's answers."""

    def __init__(self, path: Path, run: bytes, *, largest_rounds_a_day: int) -> None:
        """Open the list of a run, 16 bytes; an empty one is made where there is none.

        Raises:
            AnswerStoreError: If the file cannot be opened, or a newer version wrote it.
        """
        self._path = path
        self._run = run
        self._rounds_a_day = largest_rounds_a_day
        try:
            if not path.exists():
                path.touch(mode=0o600)
                sync_folder(path.parent)
            with self._write() as store:
                _make_tables(store, path)
        except (sqlite3.Error, OSError) as error:
            raise AnswerStoreError(f"{path} cannot be opened: {error}") from None

    def check_known(self, sequence: int, sha256: bytes) -> None:
        """Refuse if the coordinator holds an answer that this list lacks: it is an old backup's."""
        if sequence == 0:
            return
        held = self.listed(sequence, most=1)
        if not held or held[0].sha256 != sha256:
            raise Refusal(HelperCode.HELPER_BEHIND)

    def check_open(self, round_number: int, attempt: int, group: int, *, now_ms: int) -> None:
        """Refuse, before a set is read, what no set could get an answer for."""
        with self._read() as store:
            if _row_of(store, round_number, attempt, group) is None:
                self._check_attempt(store, round_number, attempt, now_ms)

    def find(self, asked: Question, *, now_ms: int) -> SignedAnswer | None:
        """Return the answer that the same question got before, or None if it may be answered.

        Raises:
            Refusal: If it may not.
        """
        with self._read() as store:
            return self._find(store, asked, now_ms)

    def record(
        self, asked: Question, sum_sha256: bytes, helper: Identity, *, now_ms: int
    ) -> SignedAnswer:
        """Sign an answer and make it durable, or return the one that the same question got before.

        Raises:
            Refusal: If the question may not be answered. Nothing is written then.
            AnswerError: If the sum is another than before for the same set.
        """
        with self._write() as store:
            before = self._find(store, asked, now_ms)
            if before is not None:
                if before.answer.sum_sha256 != sum_sha256:
                    raise AnswerError("the same set must have the same sum")
                return before
            newest = _newest(store)
            answer = Answer(
                sequence=1 if newest is None else newest.answer.sequence + 1,
                run=asked.run,
                round_number=asked.round_number,
                attempt=asked.form.attempt,
                group=asked.group,
                groups=asked.form.groups,
                element_count=asked.form.element_count,
                bits=asked.form.bits,
                set_sha256=asked.set_sha256,
                sum_sha256=sum_sha256,
                recorded_ms=now_ms,
                previous_sha256=first_head(self._run) if newest is None else newest.sha256,
            )
            signed = sign_answer(answer, helper)
            if newest is None or newest.answer.question[:2] != answer.question[:2]:
                _forget_attempt(store)
            _insert(store, signed)
            _use(store, "leases", asked.nonces)
            _use(store, "devices", _device_digests(asked))
            _use(store, "seeds", map(_seed_digest, asked.seeds.values()))
            return signed

    def listed(self, first_sequence: int = 1, *, most: int = -1) -> list[SignedAnswer]:
        """Return answers from a place on, oldest first; all of them if ``most`` is negative."""
        with self._read() as store:
            rows = store.execute(
                f"SELECT {_SIGNED} FROM answers WHERE sequence >= ? ORDER BY sequence LIMIT ?",  # noqa: S608
                (min(first_sequence, _LARGEST_SEQUENCE), most),
            ).fetchall()
        return [SignedAnswer(*row) for row in rows]

    def rounds_today(self, now_ms: int) -> int:
        """Return how many attempts at rounds were answered in the 24 hours before ``now_ms``."""
        with self._read() as store:
            return _rounds_within_a_day(store, now_ms)

    def take_back(self, lacking: list[SignedAnswer], *, authority: bytes) -> int:
        """Add answers that a coordinator kept and this list, an old backup's, lacks; count them.

        ``lacking`` is the coordinator's whole list, oldest first. Which leases and seeds they used
        is lost: their attempts are refused whole from now on.

        Raises:
            AnswerError: If they are not this helper's, or do not follow this list.
        """
        with self._write() as store:
            newest = _newest(store)
            held = 0 if newest is None else newest.answer.sequence
            mine = [SignedAnswer(*row) for row in store.execute(_ALL).fetchall()]
            if [answer.sha256 for answer in lacking[:held]] != [a.sha256 for a in mine]:
                raise AnswerError("the two lists differ before this one ends: one was changed")
            check_list(lacking[held:], authorities=[authority], run=self._run, after=newest)
            for signed in lacking[held:]:
                _forget_attempt(store)
                _insert(store, signed)
            return len(lacking) - held

    def _find(self, store: sqlite3.Connection, asked: Question, now_ms: int) -> SignedAnswer | None:
        attempt = asked.form.attempt
        row = _row_of(store, asked.round_number, attempt, asked.group)
        if row is not None:
            if row[0] != asked.set_sha256:
                raise Refusal(HelperCode.OTHER_SET)
            return SignedAnswer(*row[1:])
        self._check_attempt(store, asked.round_number, attempt, now_ms)
        newest = _newest(store)
        if newest is not None and newest.answer.question[:2] == (asked.round_number, attempt):
            _check_apart(store, asked)
        digests = {_seed_digest(seed): slot for slot, seed in asked.seeds.items()}
        used = [slot for digest, slot in digests.items() if _is_used(store, "seeds", digest)]
        if used:
            raise Refusal(HelperCode.REPEATED_SEED, used)
        return None

    def _check_attempt(
        self, store: sqlite3.Connection, round_number: int, attempt: int, now_ms: int
    ) -> None:
        """Refuse an attempt older than one that was answered, and one too many of a day."""
        newest = _newest(store)
        if newest is None or newest.answer.question[:2] == (round_number, attempt):
            return
        if (round_number, attempt) < newest.answer.question[:2]:
            raise Refusal(HelperCode.STALE_ATTEMPT)
        if _rounds_within_a_day(store, now_ms) >= self._rounds_a_day:
            raise Refusal(HelperCode.TOO_MANY_ROUNDS)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Run one durable transaction, of which nothing is kept if the block raises."""
        with closing(self._connected()) as store:
            # Closing without a commit rolls back.
            store.execute("BEGIN IMMEDIATE")
            yield store
            store.execute("COMMIT")

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connected()) as store:
            store.execute("BEGIN")
            yield store

    def _connected(self) -> sqlite3.Connection:
        store = sqlite3.connect(self._path, timeout=_BUSY_MS / 1000, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            store.execute(f"PRAGMA {pragma}")
        return store


_ALL = f"SELECT {_SIGNED} FROM answers ORDER BY sequence"  # noqa: S608  # our own names
_LARGEST_SEQUENCE = (1 << 63) - 1


def _make_tables(store: sqlite3.Connection, path: Path) -> None:
    (version,) = store.execute("PRAGMA user_version").fetchone()
    if version > _FORMAT:
        raise AnswerStoreError(f"{path} was written by a newer sotto than this one; update sotto")
    if version == 0:
        for statement in filter(str.strip, _TABLES.split(";")):
            store.execute(statement)
        store.execute(f"PRAGMA user_version={_FORMAT}")


def _row_of(
    store: sqlite3.Connection, round_number: int, attempt: int, group: int
) -> tuple[bytes, bytes, bytes, bytes] | None:
    row: tuple[bytes, bytes, bytes, bytes] | None = store.execute(
        f"SELECT set_sha256, {_SIGNED} FROM answers "  # noqa: S608  # our own names
        "WHERE round_number = ? AND attempt = ? AND part = ?",
        (round_number, attempt, group),
    ).fetchone()
    return row


def _newest(store: sqlite3.Connection) -> SignedAnswer | None:
    row = store.execute(f"{_ALL} DESC LIMIT 1").fetchone()
    return None if row is None else SignedAnswer(*row)


def _rounds_within_a_day(store: sqlite3.Connection, now_ms: int) -> int:
    # Ahead too: a clock that was set back opens no room for more.
    (count,) = store.execute(
        "SELECT count(*) FROM (SELECT DISTINCT round_number, attempt FROM answers "
        "WHERE recorded_ms BETWEEN ? AND ?)",
        (now_ms - _DAY_MS + 1, now_ms + _DAY_MS),
    ).fetchone()
    return int(count)


def _insert(store: sqlite3.Connection, signed: SignedAnswer) -> None:
    answer = signed.answer
    store.execute(
        "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (answer.sequence, *answer.question, answer.set_sha256, answer.recorded_ms, *signed),
    )


def _forget_attempt(store: sqlite3.Connection) -> None:
    store.execute("DELETE FROM leases")
    store.execute("DELETE FROM devices")


def _check_apart(store: sqlite3.Connection, asked: Question) -> None:
    """Refuse a set of the newest attempt that shares a lease or device with one answered before."""
    if store.execute("SELECT 1 FROM devices LIMIT 1").fetchone() is None:
        # The attempt was taken back from the coordinator's list: who was in it is lost.
        raise Refusal(HelperCode.STALE_ATTEMPT)
    used = any(_is_used(store, "leases", nonce) for nonce in asked.nonces)
    if used or any(_is_used(store, "devices", digest) for digest in _device_digests(asked)):
        raise Refusal(HelperCode.OVERLAPPING_SET)


def _use(store: sqlite3.Connection, table: str, keys: Iterable[bytes]) -> None:
    added = f"INSERT INTO {table} VALUES (?)"  # noqa: S608  # our own names
    store.executemany(added, [(key,) for key in keys])


def _is_used(store: sqlite3.Connection, table: str, key: bytes) -> bool:
    query = f"SELECT 1 FROM {table} WHERE used = ?"  # noqa: S608  # our own names
    return store.execute(query, (key,)).fetchone() is not None


def _device_digests(asked: Question) -> list[bytes]:
    """Return a digest of each device's name, another one in every attempt."""
    attempt = _ATTEMPT.pack(asked.run, asked.round_number, asked.form.attempt)
    return [
        hashlib.sha256(_DEVICE_TAG + attempt + name.encode()).digest() for name in asked.devices
    ]


def _seed_digest(seed: bytes) -> bytes:
    return hashlib.sha256(_SEED_TAG + seed).digest()[:_SEED_DIGEST_BYTES]
