from pathlib import Path

import msgspec
import pytest

from models.plan.release_record import (
    ReleaseError,
    ReleaseRecord,
    check_release_files,
    decode_release_record,
    digests_of,
)

RECORD = ReleaseRecord(
    run="ab" * 16,
    round=3,
    parameters_sha256="11" * 32,
    schema_sha256="22" * 32,
    previous_sha256="33" * 32,
    metrics={"perplexity": 81.5, "contributions": 4, "note": None},
    guarantee="no privacy guarantee",
    files={"plan.json": "44" * 32},
)


def altered(**changes: object) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(RECORD) | changes)


def test_a_record_is_decoded_as_it_was_encoded_and_always_the_same() -> None:
    encoded = RECORD.encode()

    assert decode_release_record(encoded) == RECORD
    assert decode_release_record(encoded).encode() == encoded


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (altered(format_version=2), "must be 1, got 2; this sotto is older"),
        (altered(format_version=0), "must be 1, got 0; the release is older"),
        (altered(rounds=3), "unknown field `rounds`"),
        (altered(round=3.5), r"Expected `int`, got `float` - at `\$\.round`"),
        (altered(metrics={"a": [1]}), "got `array`"),
        (b"{}", "missing required field `format_version`"),
        (b"\xff", "cannot be read"),
    ],
)
def test_what_is_no_record_of_this_version_is_refused(encoded: bytes, message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        decode_release_record(encoded)


def test_files_are_compared_with_their_digests(tmp_path: Path) -> None:
    contents = {"plan.json": b"{}", "vocabulary.txt": b"<unk>\n"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    record = msgspec.structs.replace(RECORD, files=digests_of(contents))
    # SHA-256 of the two bytes "{}".
    assert record.files["plan.json"] == (
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )

    check_release_files(tmp_path, record)

    (tmp_path / "vocabulary.txt").write_bytes(b"<unk>\r")
    with pytest.raises(ReleaseError, match=r"vocabulary\.txt is not the file"):
        check_release_files(tmp_path, record)
    (tmp_path / "plan.json").unlink()
    with pytest.raises(ReleaseError, match=r"plan\.json cannot be read"):
        check_release_files(tmp_path, record)
