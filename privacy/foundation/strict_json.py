"""JSON from outside, decoded by the one rule for all of it.

msgspec decodes into types and refuses unknown keys where the type does. This adds what it leaves
open: a size, a nesting depth that does not depend on the stack, UTF-8 in what is passed over too,
no key twice in an object, and no whole number beyond 64 bits. All of it is one kind of error.

References:
    RFC 8259 (JSON), section 4 on names that are not unique; RFC 7493 (I-JSON), which forbids them.
"""

import json
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from privacy.foundation.bounded_files import FileTooLargeError, read_bounded

T = TypeVar("T")

LARGEST_JSON_BYTES = 64 << 20
"""A bound for what a run keeps of many clients or rounds."""

LARGEST_RECORD_BYTES = 1 << 20
"""A bound for one record: a plan, a manifest, an invite, what a device keeps of its enrolment."""

DEEPEST = 32
"""Levels of lists and objects; plans, manifests and records have at most eight."""

_LARGEST_WHOLE = 1 << 64
_LONGEST_WHOLE = len(str(_LARGEST_WHOLE)) + 1
# Also one that never ends: it takes the rest, or each of its escaped quotes would begin a search.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")


def decode_json(encoded: bytes | str, wanted: type[T], *, at_most: int = LARGEST_JSON_BYTES) -> T:
    """Return JSON of at most ``at_most`` bytes as a type.

    Raises:
        DecodeError: msgspec's, if it is too large or too deep, is no UTF-8 or no JSON, gives a key
            twice or a whole number beyond 64 bits; ValidationError if it is not of the type.
    """
    try:
        content = encoded.encode() if isinstance(encoded, str) else encoded
        if len(content) > at_most:
            raise msgspec.DecodeError(f"JSON must have at most {at_most} bytes, got {len(content)}")
        text = content.decode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise msgspec.DecodeError(f"JSON must be UTF-8: {error.reason}") from None
    _check_depth(content)
    malformed = _scanned(text)
    try:
        # It says best what is wrong with what is no JSON at all.
        found = msgspec.json.decode(content, type=wanted)
    except (RecursionError, OverflowError) as error:
        raise msgspec.DecodeError(f"JSON cannot be decoded: {error}") from None
    if malformed is not None:
        raise msgspec.DecodeError(f"JSON is malformed: {malformed}")
    return found


def read_json(path: Path, wanted: type[T], *, at_most: int = LARGEST_JSON_BYTES) -> T:
    """Return what stands in a JSON file.

    Raises:
        DecodeError: As `decode_json`, a file that is too large included.
        OSError: If it cannot be read.
    """
    try:
        content = read_bounded(path, at_most)
    except FileTooLargeError as error:
        raise msgspec.DecodeError(error.strerror) from None
    return decode_json(content, wanted, at_most=at_most)


def _check_depth(content: bytes) -> None:
    if content.count(b"[") + content.count(b"{") <= DEEPEST:
        return
    left = _STRING.sub(b"", content).translate(_BRACKETS, delete=_NO_BRACKET)
    for _ in range(DEEPEST):
        inner = left.replace(b"[]", b"")
        if inner == left:
            # None is left, or those that are have no partner: then it is no JSON either.
            break
        left = inner
    if b"[]" in left or left.count(b"[") > DEEPEST:
        raise msgspec.DecodeError(f"JSON must be at most {DEEPEST} levels deep")


class _RefusedJsonError(ValueError):
    pass


def _scanned(text: str) -> str | None:
    """Refuse keys given twice and large numbers; return where text is no JSON, None if it is."""
    try:
        _SCANNER.decode(text)
    except (_RefusedJsonError, RecursionError) as error:
        raise msgspec.DecodeError(f"JSON cannot be decoded: {error}") from None
    except json.JSONDecodeError as error:
        return str(error)
    return None


def _each_once(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _RefusedJsonError("an object must give each name once")


def _whole(digits: str) -> None:
    if len(digits) > _LONGEST_WHOLE or abs(int(digits)) >= _LARGEST_WHOLE:
        raise _RefusedJsonError("a whole number must fit into 64 bits")


# Keeps nothing of what it reads. Not strict: a tab in a string is msgspec's to judge.
_SCANNER = json.JSONDecoder(
    object_pairs_hook=_each_once, parse_int=_whole, parse_float=len, strict=False
)
