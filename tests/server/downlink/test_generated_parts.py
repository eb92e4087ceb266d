"""What is generated for a device opens for it and its lease alone, in whatever pieces it comes."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.networks.flat_parameters import parameters_sha256
from models.vector.base_digest import base_digest
from models.vector.codec import FlatVector, decode, payload_size
from privacy.identities.party import Identity
from privacy.sealing.envelope import Direction, MessageContext, UnsealError, open_sealed
from protos import federation_pb2 as pb
from server.downlink.generated_parts import GeneratedParts
from server.machine.answers import Lease
from server.records.threads import Threads
from tests.server.fedtp import GENERATED, taught
from tests.server.sealing import RUN, Parties, make_parties

NAMES = ("device-0001", "device-0002")
BASE = b"b" * 32
STATE = taught(*NAMES)
LEASES = [Lease(bytes([slot + 1]) * 16, NAMES[slot], 3, 0, slot, 60.0) for slot in range(2)]


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("parties"), NAMES)


@pytest.fixture
def threads() -> Iterator[Threads]:
    with ThreadPoolExecutor(2) as executor:
        yield Threads(executor)


def make_parts(
    parties: Parties, folder: Path, threads: Threads, round_number: int = 3
) -> GeneratedParts:
    return GeneratedParts(
        STATE,
        folder,
        run=bytes.fromhex(RUN),
        round_number=round_number,
        base_sha256=BASE,
        sender=parties.coordinator,
        threads=threads,
    )


@pytest.fixture
def parts(parties: Parties, tmp_path: Path, threads: Threads) -> GeneratedParts:
    return make_parts(parties, tmp_path / "parts", threads)


def fetch(parts: GeneratedParts, parties: Parties, slot: int, *offsets: int) -> list[bytes]:
    """Return what the device in a slot receives from each offset on."""
    recipient = parties.devices[slot].wrapping.certified

    async def fetched() -> list[bytes]:
        asked = [parts.pieces(LEASES[slot], recipient, offset) for offset in offsets]
        return [
            b"".join(pb.ModelChunk.FromString(message).data for message in messages)
            for messages in await asyncio.gather(*asked)
        ]

    return asyncio.run(fetched())


def context(slot: int) -> MessageContext:
    return MessageContext(
        direction=Direction.DOWNLINK,
        run=bytes.fromhex(RUN),
        round_number=3,
        slot=slot,
        lease_nonce=LEASES[slot].nonce,
        base_sha256=BASE,
        schema_sha256=GENERATED.sha256,
        deadline_ms=0,
    )


def opened(
    sealed: bytes, expected: MessageContext, device: Identity, parties: Parties
) -> FlatVector:
    payload = open_sealed(
        [sealed],
        expected,
        payload_bytes=payload_size(GENERATED),
        recipient=device,
        sender=parties.coordinator.signing.certified,
    )
    return decode(GENERATED, payload)


@pytest.mark.slow
def test_each_device_gets_its_own_parameters(parts: GeneratedParts, parties: Parties) -> None:
    received = []
    for slot, device in enumerate(parties.devices):
        (sealed,) = fetch(parts, parties, slot, 0)
        assert len(sealed) == parts.total_bytes
        received.append(opened(sealed, context(slot), device, parties))

    assert np.array_equal(received[0], STATE.parameters_for(NAMES[0]).numpy())
    assert np.array_equal(received[1], STATE.parameters_for(NAMES[1]).numpy())
    assert not np.array_equal(received[0], received[1])


@pytest.mark.slow
def test_a_fetch_that_goes_on_anywhere_gives_the_message_that_was_begun(
    parts: GeneratedParts, parties: Parties
) -> None:
    whole, *rest, empty = fetch(parts, parties, 0, 0, 1, 576, 1310, parts.total_bytes)

    assert rest == [whole[1:], whole[576:], whole[1310:]]
    assert empty == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"round_number": 4},
        {"slot": 1},
        {"lease_nonce": LEASES[1].nonce},
        {"base_sha256": bytes(32)},
        {"schema_sha256": bytes(32)},
        {"direction": Direction.UPLINK},
        {"run": bytes(16)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_part_for_anything_else_does_not_open(
    parts: GeneratedParts, parties: Parties, change: dict[str, int | bytes]
) -> None:
    (sealed,) = fetch(parts, parties, 0, 0)
    expected = replace(context(0), **change)  # type: ignore[arg-type]  # one field each

    with pytest.raises(UnsealError):
        opened(sealed, expected, parties.devices[0], parties)


def test_another_devices_part_does_not_open(parts: GeneratedParts, parties: Parties) -> None:
    (sealed,) = fetch(parts, parties, 1, 0)

    # Its key is wrapped for the other device, and it names the other's lease.
    for slot in range(2):
        with pytest.raises(UnsealError):
            opened(sealed, context(slot), parties.devices[0], parties)


@pytest.mark.parametrize("place", [0, 100, 600, 900, 1400, -1])
def test_one_flipped_bit_anywhere_is_refused(
    parts: GeneratedParts, parties: Parties, place: int
) -> None:
    (sealed,) = fetch(parts, parties, 0, 0)
    changed = bytearray(sealed)
    changed[place] ^= 1

    with pytest.raises(UnsealError):
        opened(bytes(changed), context(0), parties.devices[0], parties)


def test_an_update_is_bound_to_both_parts_of_its_own_device(parts: GeneratedParts) -> None:
    bases = [parts.base_of(name) for name in NAMES]

    assert bases == [
        base_digest(BASE, parameters_sha256(STATE.parameters_for(name))) for name in NAMES
    ]
    assert len({BASE, *bases}) == 3


def test_the_next_attempt_deletes_what_this_one_left(
    parts: GeneratedParts, parties: Parties, tmp_path: Path, threads: Threads
) -> None:
    fetch(parts, parties, 0, 0)
    assert len(list((tmp_path / "parts").iterdir())) == 1

    make_parts(parties, tmp_path / "parts", threads, round_number=4)

    assert not any((tmp_path / "parts").iterdir())
