"""Sealing and opening when nobody interferes, against a second implementation too."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.foundation.secure_source import SecureSource
from privacy.identities.party import Identity
from privacy.sealing.envelope import (
    MessageContext,
    Opener,
    Suite,
    UnsealError,
    open_sealed,
    payload_bytes_of,
    seal,
    seal_body,
    sealed_bytes,
)
from privacy.sealing.header import SLIP_BYTES, parse_header
from tests.privacy.conftest import Federation
from tests.privacy.forging import MIB, Forger, Parts, tree_digest


def sealed_update(payload: bytes, context: MessageContext, federation: Federation) -> bytes:
    recipient = federation.coordinator.wrapping.certified
    message = seal(payload, context, sender=federation.device, recipient=recipient)
    sealed = b"".join(map(bytes, message.views()))
    assert len(sealed) == sealed_bytes(len(payload))
    return sealed


def opened_update(
    sealed: bytes, piece_bytes: int, payload_bytes: int, context: MessageContext, home: Federation
) -> memoryview:
    return open_sealed(
        (sealed[i : i + piece_bytes] for i in range(0, len(sealed), piece_bytes)),
        context,
        payload_bytes=payload_bytes,
        recipient=home.coordinator,
        sender=home.device.signing.certified,
    )


def opened_file(
    path: Path, payload_bytes: int, context: MessageContext, home: Federation
) -> memoryview:
    opener = Opener(
        context,
        payload_bytes=payload_bytes,
        recipient=home.coordinator,
        sender=home.device.signing.certified,
    )
    with path.open("rb", buffering=0) as file:
        opener.feed_file(file)
    return opener.finish()


@settings(max_examples=60, deadline=None)
@given(payload=st.binary(max_size=3000), piece_bytes=st.integers(1, 5000))
def test_any_payload_comes_back_whatever_pieces_it_arrives_in(
    federation: Federation, uplink: MessageContext, payload: bytes, piece_bytes: int
) -> None:
    sealed = sealed_update(payload, uplink, federation)

    assert opened_update(sealed, piece_bytes, len(payload), uplink, federation) == payload


@pytest.mark.parametrize("payload_bytes", [MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 5])
@pytest.mark.parametrize("piece_bytes", [MIB + 16, MIB, 70_001, 9 * MIB])
def test_payloads_about_the_chunk_size_come_back(
    federation: Federation, uplink: MessageContext, payload_bytes: int, piece_bytes: int
) -> None:
    payload = SecureSource().bytes(payload_bytes)
    sealed = sealed_update(payload, uplink, federation)

    assert opened_update(sealed, piece_bytes, payload_bytes, uplink, federation) == payload


@pytest.mark.parametrize("payload_bytes", [0, 5, MIB, 2 * MIB + 5])
def test_a_message_is_opened_from_its_file(
    federation: Federation, uplink: MessageContext, tmp_path: Path, payload_bytes: int
) -> None:
    payload = SecureSource().bytes(payload_bytes)
    path = tmp_path / "update.sealed"
    path.write_bytes(sealed_update(payload, uplink, federation))

    assert opened_file(path, payload_bytes, uplink, federation) == payload


@pytest.mark.parametrize("cut", ["empty", "first byte", "last byte", "one byte more"])
def test_a_file_that_is_not_the_whole_message_does_not_open(
    federation: Federation, uplink: MessageContext, tmp_path: Path, cut: str
) -> None:
    sealed = sealed_update(bytes(MIB + 5), uplink, federation)
    cuts = {
        "empty": b"",
        "first byte": sealed[1:],
        "last byte": sealed[:-1],
        "one byte more": sealed + b"\0",
    }
    path = tmp_path / "update.sealed"
    path.write_bytes(cuts[cut])

    with pytest.raises(UnsealError):
        opened_file(path, MIB + 5, uplink, federation)


def test_the_sealed_size_is_prefix_and_payload_and_a_tag_a_chunk() -> None:
    # Slip 64 + 512, header 254, signature 512; 16 a chunk, of which there is always one.
    assert sealed_bytes(0) == 1342 + 16
    assert sealed_bytes(MIB) == 1342 + MIB + 16
    assert sealed_bytes(MIB + 1) == 1342 + MIB + 1 + 32


@given(st.integers(0, 5 * MIB))
def test_the_size_of_a_payload_follows_from_its_messages(payload_bytes: int) -> None:
    assert payload_bytes_of(sealed_bytes(payload_bytes)) == payload_bytes


@pytest.mark.parametrize("sealed", [0, 1341, 1357, 1342 + MIB + 17, 1342 + MIB + 32])
def test_a_size_that_no_message_has_gives_no_payload(sealed: int) -> None:
    # 17 to 32 bytes after a full chunk hold a tag and at most nothing.
    assert payload_bytes_of(sealed) is None


def test_a_message_made_by_the_documented_layout_opens(
    federation: Federation, uplink: MessageContext, forger: Forger
) -> None:
    sealed = forger.make().join()

    opened = opened_update(sealed, 100_000, len(forger.payload), uplink, federation)

    assert opened == forger.payload


def test_a_sealed_header_says_what_the_context_says(
    federation: Federation, uplink: MessageContext
) -> None:
    payload = SecureSource().bytes(2 * MIB)
    message = seal(
        payload,
        uplink,
        sender=federation.device,
        recipient=federation.coordinator.wrapping.certified,
    )
    opener = Opener(
        replace(uplink, deadline_ms=None),
        payload_bytes=len(payload),
        recipient=federation.coordinator,
        sender=federation.device.signing.certified,
    )

    for chunk in map(bytes, message.views()):
        opener.feed(chunk)
    opener.finish()

    assert opener.message_id == message.message_id
    assert opener.header.deadline_ms == uplink.deadline_ms
    assert opener.header.sender_sha256 == federation.device.signing.certified.sha256


def test_a_model_commits_to_its_content_and_an_update_to_its_key(
    federation: Federation, uplink: MessageContext, downlink: MessageContext
) -> None:
    payload = SecureSource().bytes(2 * MIB + 1)

    model = seal_body(payload, downlink, sender=federation.coordinator)
    updates = [seal_body(payload, uplink, sender=federation.device) for _ in range(2)]

    assert tree_digest(payload) in model.header
    # Two fresh keys, and nothing of what they encrypt.
    headers = {parse_header(update.header).commitment for update in updates}
    assert len(headers) == 2
    assert tree_digest(payload) not in headers


def test_one_body_opens_for_every_member_of_a_cohort(
    federation: Federation, downlink: MessageContext
) -> None:
    payload = SecureSource().bytes(MIB + 9)
    body = seal_body(payload, downlink, sender=federation.coordinator)
    members = (federation.device, federation.other_device)
    slips = [body.for_recipient(member.wrapping.certified) for member in members]
    chunks = list(map(bytes, body.views()))

    opened = [
        open_sealed(
            [slip, *chunks],
            downlink,
            payload_bytes=len(payload),
            recipient=member,
            sender=federation.coordinator.signing.certified,
        )
        for slip, member in zip(slips, members, strict=True)
    ]

    assert opened == [payload, payload]
    assert sum(map(len, chunks)) == sealed_bytes(len(payload)) - SLIP_BYTES


def test_two_seals_of_one_payload_share_no_key_nonce_or_name(
    federation: Federation, uplink: MessageContext
) -> None:
    first, second = (Parts.of(sealed_update(b"the same", uplink, federation)) for _ in range(2))

    # Nonce prefix, message id, wrapped key and ciphertext all differ.
    assert first.header[11:18] != second.header[11:18]
    assert first.header[198:214] != second.header[198:214]
    assert first.slip[64:] != second.slip[64:]
    assert first.chunks != second.chunks


def test_chunks_in_passing_make_the_same_message_and_keep_no_chunk(
    federation: Federation, uplink: MessageContext
) -> None:
    payload = SecureSource().bytes(3 * MIB + 5)
    recipient = federation.coordinator.wrapping.certified
    message = seal(payload, uplink, sender=federation.device, recipient=recipient)
    copied, views = [], []
    for view in message.views():
        copied.append(bytes(view))
        views.append(view)

    opened = open_sealed(
        copied,
        uplink,
        payload_bytes=len(payload),
        recipient=federation.coordinator,
        sender=federation.device.signing.certified,
    )

    assert opened == payload
    # Prefix and four chunks; the first chunk's place was taken by those after it.
    assert len(views) == 5
    assert bytes(views[1]) != copied[1]


def test_a_body_is_encrypted_once_only(federation: Federation, uplink: MessageContext) -> None:
    body = seal_body(b"payload", uplink, sender=federation.device)
    list(map(bytes, body.views()))

    with pytest.raises(ValueError, match="read once"):
        map(bytes, body.views())


def test_an_opener_decrypts_into_memory_it_is_given(
    federation: Federation, uplink: MessageContext
) -> None:
    payload = SecureSource().bytes(2 * MIB)
    memory = bytearray(len(payload))
    opener = Opener(
        uplink,
        payload_bytes=len(payload),
        recipient=federation.coordinator,
        sender=federation.device.signing.certified,
        into=memory,
    )

    opener.feed(sealed_update(payload, uplink, federation))
    opened = opener.finish()

    assert memory == payload
    assert opened.readonly
    assert opened.obj is memory


def test_memory_for_a_payload_of_another_size_is_refused(
    federation: Federation, uplink: MessageContext
) -> None:
    with pytest.raises(ValueError, match="into must be writable and have 10 bytes, got 9"):
        Opener(
            uplink,
            payload_bytes=10,
            recipient=federation.coordinator,
            sender=federation.device.signing.certified,
            into=bytearray(9),
        )


def test_no_payload_before_the_last_byte(federation: Federation, uplink: MessageContext) -> None:
    opener = Opener(
        uplink,
        payload_bytes=7,
        recipient=federation.coordinator,
        sender=federation.device.signing.certified,
    )
    opener.feed(sealed_update(b"payload", uplink, federation)[:-1])

    with pytest.raises(UnsealError):
        opener.finish()


def test_a_header_that_has_not_arrived_is_not_given(
    federation: Federation, uplink: MessageContext
) -> None:
    opener = Opener(
        uplink,
        payload_bytes=7,
        recipient=federation.coordinator,
        sender=federation.device.signing.certified,
    )
    opener.feed(sealed_update(b"payload", uplink, federation)[:1309])

    with pytest.raises(UnsealError):
        _ = opener.message_id


def test_a_body_is_not_sealed_to_a_signing_key(
    federation: Federation, uplink: MessageContext
) -> None:
    with pytest.raises(ValueError, match="must be certified for wrapping, got one for signing"):
        seal(
            b"payload",
            uplink,
            sender=federation.device,
            recipient=federation.coordinator.signing.certified,
        )


def test_a_message_is_not_opened_as_signed_by_a_wrapping_key(
    federation: Federation, uplink: MessageContext
) -> None:
    with pytest.raises(ValueError, match="must be for signing, got one for wrapping"):
        Opener(
            uplink,
            payload_bytes=7,
            recipient=federation.coordinator,
            sender=federation.device.wrapping.certified,
        )


def test_the_larger_suite_is_not_sealed_with_smaller_keys(
    federation: Federation, uplink: MessageContext
) -> None:
    with pytest.raises(ValueError, match="at least 4096 bits"):
        seal_body(b"payload", uplink, sender=federation.device, suite=Suite.RSA_4096)


def test_a_deadline_is_needed_to_seal(federation: Federation, uplink: MessageContext) -> None:
    with pytest.raises(ValueError, match="deadline_ms must be given"):
        seal_body(b"payload", replace(uplink, deadline_ms=None), sender=federation.device)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("run", b"short", "run must have 16 bytes, got 5"),
        ("lease_nonce", bytes(17), "lease_nonce must have 16 bytes, got 17"),
        ("base_sha256", b"", "base_sha256 must have 32 bytes, got 0"),
        ("schema_sha256", bytes(64), "schema_sha256 must have 32 bytes, got 64"),
        ("round_number", 0, "round_number must be >= 1"),
        ("round_number", 1 << 32, "round_number must be >= 1"),
        ("slot", -1, "slot must be >= 0"),
        ("deadline_ms", -1, "deadline_ms must be >= 0"),
    ],
)
def test_a_context_that_does_not_fit_the_header_is_refused(
    uplink: MessageContext, field: str, value: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(uplink, **{field: value})  # type: ignore[arg-type]  # any field, by name


@pytest.mark.slow
def test_the_larger_suite_opens_where_only_it_is_allowed(
    large: Identity, uplink: MessageContext
) -> None:
    message = seal(
        b"payload", uplink, sender=large, recipient=large.wrapping.certified, suite=Suite.RSA_4096
    )

    opened = open_sealed(
        map(bytes, message.views()),
        uplink,
        payload_bytes=7,
        recipient=large,
        sender=large.signing.certified,
        suites=frozenset({Suite.RSA_4096}),
    )

    assert bytes(opened) == b"payload"
