"""Text that a person typed on this device, kept only as long as its owner says.

A JSONL file, one text a line, oldest first: ``{"text": ..., "time": ..., "incognito": false}``. A
keyboard appends to it, through `LocalText.add` or by itself; training reads it. Age and size limits
hold at every read, and `LocalText.tidy` also removes what they exclude from the file. Incognito
texts are never stored, and never read if another program stored them. Replacing a file does not
wipe the old one's blocks from a flash disk: use an encrypted one.

A folder of text files is its owner's own: no limits apply there and nothing is removed.
"""

import contextlib
import fcntl
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edge_client.datasets.reading import decode_text, read_rows, read_text
from edge_client.datasets.text.folder import text_files
from edge_client.datasets.text_set import DatasetError
from models.text.private_text import Kind
from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.strict_json import decode_json

_DAY_S = 86_400


class TextSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of the device's own text that is kept, and that a shared model may learn from.

    Nothing is removed from a file unless a limit is set.

    Attributes:
        retention_days: Age at which a text is removed, in days; absent means never.
        largest_bytes: Most bytes kept, newest first; absent means any number.
        largest_texts: Most texts kept, newest first; absent means any number.
        delete_after_use: Whether the trainer removes a text once an update trained on it is sealed.
        keep: Private things that stay in text to train and score on; all others are cut
            (`models.text.private_text`). A word list has no numbers and no electronic addresses, so
            those reach models of letters alone.
    """

    retention_days: float | None = None
    largest_bytes: int | None = None
    largest_texts: int | None = None
    delete_after_use: bool = False
    keep: tuple[Kind, ...] = ()

    def __post_init__(self) -> None:
        days = self.retention_days
        if days is not None and not 0 < days < math.inf:
            raise ValueError(f"retention_days must be > 0 and finite, got {days}")
        for name in ("largest_bytes", "largest_texts"):
            largest = getattr(self, name)
            if largest is not None and largest < 1:
                raise ValueError(f"{name} must be >= 1, got {largest}")

    @property
    def removes_some(self) -> bool:
        """Return whether a text can be outside the limits."""
        limits = (self.retention_days, self.largest_bytes, self.largest_texts)
        return any(limit is not None for limit in limits)


class TypedText(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file; ``incognito`` if the field asked not to be learnt from.

    ``time`` is seconds since 1970 UTC, without it that of the file's last change.
    """

    text: str
    time: float | None = None
    incognito: bool = False


@dataclass(frozen=True)
class StoredText:
    """One text and its line in the file, by which `LocalText.delete` finds it again."""

    text: str
    line: bytes


class LocalText:
    """A person's text in one owner-only file that several programs may append to."""

    def __init__(self, path: Path, settings: TextSettings) -> None:
        """Keep text at ``path``, whose folder must exist, within the limits of ``settings``."""
        self._path = path
        self._settings = settings

    def add(self, text: str, *, now: float, incognito: bool) -> bool:
        """Append a text; return whether it was stored, which an incognito one never is.

        Raises:
            OSError: If the disk is full; what was stored before is untouched.
        """
        if incognito:
            return False
        line = msgspec.json.encode(TypedText(text=text, time=now)) + b"\n"
        with self._locked():
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                _append(descriptor, line)
            finally:
                os.close(descriptor)
        return True

    def read(self, *, now: float) -> list[StoredText]:
        """Return the texts within the limits, oldest first; nothing is written.

        Raises:
            DatasetError: If a line is no such object; names the line, never what it says.
        """
        # Without the lock: the file is replaced whole, and an append in progress is no line yet.
        return [StoredText(typed.text, line) for line, typed in self._kept(now)]

    def tidy(self, *, now: float) -> int:
        """Remove what is outside the limits or incognito; return how many lines went.

        Raises:
            DatasetError: As `read`; nothing is removed.
        """
        with self._locked():
            before = sum(1 for _ in self._lines())
            kept = [line for line, _ in self._kept(now)]
            if len(kept) < before:
                self._replace(kept)
            return before - len(kept)

    def delete(self, used: Iterable[StoredText]) -> None:
        """Remove texts that were read; those added since then stay.

        Raises:
            DatasetError: As `read`; nothing is removed.
        """
        gone = {stored.line for stored in used}
        with self._locked():
            self._replace([line for line, _ in self._lines() if line not in gone])

    def _kept(self, now: float) -> Iterator[tuple[bytes, TypedText]]:
        """Yield the lines within the limits, oldest first."""
        settings = self._settings
        fresh = [(line, typed) for line, typed in self._lines() if self._is_kept(typed, now)]
        room_bytes = math.inf if settings.largest_bytes is None else settings.largest_bytes
        room_texts = math.inf if settings.largest_texts is None else settings.largest_texts
        first = len(fresh)
        for line, _ in reversed(fresh):
            room_bytes -= len(line) + 1
            room_texts -= 1
            if room_bytes < 0 or room_texts < 0:
                break
            first -= 1
        yield from fresh[first:]

    def _is_kept(self, typed: TypedText, now: float) -> bool:
        days = self._settings.retention_days
        if typed.incognito or days is None:
            return not typed.incognito
        typed_at = self._path.stat().st_mtime if typed.time is None else typed.time
        return now - typed_at < days * _DAY_S

    def _lines(self) -> Iterator[tuple[bytes, TypedText]]:
        """Yield each line and what it says; an append cut short by a power failure is none."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        whole = content[: _whole_bytes(content)]
        decode_text(whole, self._path)
        for number, line in enumerate(whole.split(b"\n"), start=1):
            if line.strip():
                try:
                    yield line, decode_json(line, TypedText)
                except msgspec.DecodeError as error:
                    raise DatasetError(f"{self._path}, line {number}: {error}") from None

    def _replace(self, lines: list[bytes]) -> None:
        write_atomically(self._path, b"".join(line + b"\n" for line in lines))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file for one program; the lock is a file of its own, as this one is replaced."""
        lock = self._path.with_name(f".{self._path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def read_texts(data: Path, limits: TextSettings, *, now: float) -> list[StoredText]:
    """Return a person's texts, oldest first, one a line or message; nothing is removed.

    Args:
        data: A JSONL file, to which the limits apply; or, whole, a folder of text files, a text
            file, or a gzipped JSONL file.
        now: Seconds since 1970 UTC.

    Raises:
        DatasetError: If there is nothing, or a file cannot be read as text.
    """
    if not data.exists():
        raise DatasetError(f"{data} is missing; --data must name a folder of text or a file")
    if data.name.endswith(".jsonl"):
        return LocalText(data, limits).read(now=now)
    if data.name.endswith(".jsonl.gz"):
        rows = read_rows(data, TypedText)
        return [StoredText(row.text, b"") for row in rows if not row.incognito]
    files = list(text_files(data)) if data.is_dir() else [data]
    if not files:
        raise DatasetError(f"{data} is empty; put text files in it")
    lines = (line for file in files for line in read_text(file).splitlines())
    return [StoredText(line, b"") for line in lines if line.strip()]


def _append(descriptor: int, line: bytes) -> None:
    """Write a line after the last whole one, or nothing at all."""
    size = whole = os.fstat(descriptor).st_size
    starts_line = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
    if not starts_line:
        whole = _whole_bytes(os.pread(descriptor, size, 0))
        os.ftruncate(descriptor, whole)
    try:
        # A last line that is whole but for its end would swallow the new one.
        rest = line if starts_line or whole < size else b"\n" + line
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, whole)
        raise


def _whole_bytes(content: bytes) -> int:
    """Return the bytes before a last line that an interrupted append left broken."""
    start = content.rfind(b"\n") + 1
    try:
        if content[start:].strip():
            decode_json(content[start:], TypedText)
    except msgspec.DecodeError:
        return start
    return len(content)
