from pathlib import Path

import msgspec
import pytest

from privacy.foundation.strict_json import DEEPEST, decode_json, read_json


@pytest.mark.parametrize(
    ("encoded", "rule"),
    [
        (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), "at most 32 levels"),
        (b"[" * 100_000, "at most 32 levels"),
        (b'{"a":"\xff"}', "must be UTF-8"),
        (b'{"a":1,"a":2}', "each name once"),
        (b'{"a":{"b":1,"\\u0062":2}}', "each name once"),
        (b'{"a":18446744073709551616}', "fit into 64 bits"),
        (b'{"a":' + b"9" * 5000 + b"}", "fit into 64 bits"),
        (b"{", "truncated"),
        (b"{'a':1}", "malformed"),
        (b'"' + b"a" * 99 + b'"', "at most 100 bytes, got 101"),
    ],
)
def test_what_json_from_outside_must_not_be_is_refused(encoded: bytes, rule: str) -> None:
    at_most = 100 if b"aaa" in encoded else 1 << 20
    with pytest.raises(msgspec.DecodeError, match=rule):
        decode_json(encoded, object, at_most=at_most)


def test_brackets_in_a_text_are_no_levels() -> None:
    encoded = b'["' + b"[" * 100 + b'\\"' + b'"]'

    assert decode_json(encoded, list[str]) == ["[" * 100 + '"']


def test_the_deepest_and_the_largest_are_read() -> None:
    encoded = b"[" * DEEPEST + b"18446744073709551615" + b"]" * DEEPEST

    assert str(decode_json(encoded, object)).count("[") == DEEPEST


def test_a_file_is_read_no_further_than_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[1]")

    assert read_json(path, list[int], at_most=3) == [1]
    with pytest.raises(msgspec.DecodeError, match="at most 2 bytes"):
        read_json(path, list[int], at_most=2)
