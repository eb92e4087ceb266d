"""A sealed model opens in whatever pieces a device fetches it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import Role
from privacy.identities.party import Identity
from privacy.sealing.envelope import Direction, MessageContext, open_sealed
from protos import federation_pb2 as pb
from server.downlink.sealed_once import Downlink, encode_chunk

RUN = bytes(range(16))
BASE, SCHEMA = b"b" * 32, b"s" * 32
PAYLOAD = bytes(range(256)) * 6_000  # 1.5 MB: two chunks
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[Role, Identity]:
    """A coordinator and a device with 3072-bit keys."""
    folder: Path = tmp_path_factory.mktemp("parties")
    authority = CertificateAuthority.create(folder / "authority", RUN.hex(), now=NOW)
    roles: tuple[Role, Role] = ("coordinator", "device")
    made = {}
    for role in roles:
        requests = Identity.create_requests(folder / role, role)
        issued = authority.issue_all(requests, name=role, role=role, now=NOW)
        made[role] = Identity.install(
            folder / role, issued, ca=authority.certificate, role=role, now=NOW
        )
    return made


@pytest.fixture(scope="module")
def downlink(parties: dict[Role, Identity]) -> Downlink:
    return Downlink.seal(
        PAYLOAD,
        run=RUN,
        round_number=3,
        base_sha256=BASE,
        schema_sha256=SCHEMA,
        sender=parties["coordinator"],
    )


def fetch(downlink: Downlink, device: Identity, offset: int) -> bytes:
    """Return what a device receives from an offset on."""
    messages = downlink.pieces(device.wrapping.certified, offset)
    return b"".join(pb.ModelChunk.FromString(message).data for message in messages)


def opened(sealed: bytes, parties: dict[Role, Identity]) -> bytes:
    context = MessageContext(
        direction=Direction.DOWNLINK,
        run=RUN,
        round_number=3,
        slot=0,
        lease_nonce=bytes(16),
        base_sha256=BASE,
        schema_sha256=SCHEMA,
        deadline_ms=0,
    )
    payload = open_sealed(
        [sealed],
        context,
        payload_bytes=len(PAYLOAD),
        recipient=parties["device"],
        sender=parties["coordinator"].signing.certified,
    )
    return bytes(payload)


# A slip has 576 bytes, the first chunk ends 1 MiB, header and signature later.
@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 1, 575, 576, 577, 1_310, 1_049_902, 1_500_000])
def test_a_fetch_that_goes_on_anywhere_gives_the_message_that_was_begun(
    downlink: Downlink, parties: dict[Role, Identity], offset: int
) -> None:
    begun = fetch(downlink, parties["device"], 0)[:offset]

    rest = fetch(downlink, parties["device"], offset)

    assert len(begun) + len(rest) == downlink.total_bytes
    assert opened(begun + rest, parties) == PAYLOAD


@pytest.mark.parametrize("offset", [0, 576])
def test_no_message_of_a_fetch_is_larger_than_an_eighth_of_a_mebibyte(
    downlink: Downlink, parties: dict[Role, Identity], offset: int
) -> None:
    pieces = downlink.pieces(parties["device"].wrapping.certified, offset)

    assert max(len(pb.ModelChunk.FromString(piece).data) for piece in pieces) == 131_072


def test_a_fetch_from_the_end_is_empty(downlink: Downlink, parties: dict[Role, Identity]) -> None:
    assert fetch(downlink, parties["device"], downlink.total_bytes) == b""


@given(st.binary(max_size=400))
def test_chunks_are_encoded_as_protobuf_encodes_them(data: bytes) -> None:
    assert encode_chunk(data) == pb.ModelChunk(data=data).SerializeToString()
