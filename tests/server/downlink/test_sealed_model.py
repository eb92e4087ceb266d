"""The forms in which a model is sealed: which ways there are, whence they lead, who opens them."""

import hashlib

import numpy as np
import pytest

from models.compression.release_delta import decode_delta, delta_sha256
from models.settings.compression import CompressionSettings
from models.vector.codec import FlatVector, encode, payload_size
from models.vector.schema import Schema, TensorSpec
from privacy.identities.party import Identity
from privacy.sealing.envelope import (
    Direction,
    MessageContext,
    UnsealError,
    open_sealed,
    payload_bytes_of,
)
from protos import federation_pb2 as pb
from server.downlink.sealed_model import ModelSealer, SealedModel
from server.downlink.sealed_once import Downlink
from tests.server.sealing import Parties, make_parties

RUN = bytes(range(16))
SCHEMA = Schema((TensorSpec(name="a", shape=(400,), layer="a"),))
STEP = 2.0**-8
MOVES = CompressionSettings(
    uplink="none", downlink="delta", downlink_step=STEP, downlink_releases=2
)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("parties"), ("device-0001",))


def release(number: int, count: int = 400) -> FlatVector:
    """Return values of which each round moves every second by one step."""
    steps = np.arange(count) % 7 + number * (np.arange(count) % 2)
    return np.asarray(steps * STEP, np.float32)


def digest(flat: FlatVector) -> bytes:
    return hashlib.sha256(flat.tobytes()).digest()


def seal(sealer: ModelSealer, number: int, sender: Identity) -> SealedModel:
    flat = release(number)
    sealed = sealer.seal(
        SCHEMA,
        flat,
        encode(SCHEMA, flat),
        round_number=number + 1,
        base_sha256=digest(flat),
        sender=sender,
    )
    sealer.remember(SCHEMA, flat, digest(flat))
    return sealed


def opened(parties: Parties, sealed: Downlink, number: int, schema_sha256: bytes) -> memoryview:
    device = parties.devices[0]
    message = b"".join(
        pb.ModelChunk.FromString(piece).data
        for piece in sealed.pieces(device.wrapping.certified, 0)
    )
    size = payload_bytes_of(len(message))
    assert size is not None
    context = MessageContext(
        direction=Direction.DOWNLINK,
        run=RUN,
        round_number=number + 1,
        slot=0,
        lease_nonce=bytes(16),
        base_sha256=digest(release(number)),
        schema_sha256=schema_sha256,
        deadline_ms=0,
    )
    return open_sealed(
        [message],
        context,
        payload_bytes=size,
        recipient=device,
        sender=parties.coordinator.signing.certified,
    )


@pytest.mark.slow
def test_without_the_setting_a_model_is_sealed_as_it_is(parties: Parties) -> None:
    sealer = ModelSealer(RUN, CompressionSettings(uplink="int8"))
    seal(sealer, 1, parties.coordinator)

    sealed = seal(sealer, 2, parties.coordinator)

    assert not sealed.moved
    assert len(opened(parties, sealed.whole, 2, SCHEMA.sha256)) == payload_size(SCHEMA)


@pytest.mark.slow
def test_the_last_releases_are_ways_to_the_next_and_older_ones_are_forgotten(
    parties: Parties,
) -> None:
    sealer = ModelSealer(RUN, MOVES)

    found = [set(seal(sealer, number, parties.coordinator).moved) for number in range(5)]

    names = [digest(release(number)) for number in range(5)]
    assert found == [set(), {names[0]}, set(names[:2]), set(names[1:3]), set(names[2:4])]


def test_each_way_leads_to_the_release_and_is_opened_as_no_other(parties: Parties) -> None:
    sealer = ModelSealer(RUN, MOVES)
    for number in range(3):
        sealed = seal(sealer, number, parties.coordinator)
    one, two = digest(release(0)), digest(release(1))

    for base_sha256, base in ((None, None), (one, release(0)), (two, release(1))):
        part = sealed.whole if base_sha256 is None else sealed.moved[base_sha256]
        payload = opened(parties, part, 2, delta_sha256(SCHEMA, base_sha256))
        assert decode_delta(SCHEMA, base, payload, STEP).tobytes() == release(2).tobytes()
    with pytest.raises(UnsealError):
        opened(parties, sealed.moved[one], 2, delta_sha256(SCHEMA, two))
    with pytest.raises(UnsealError):
        opened(parties, sealed.whole, 2, SCHEMA.sha256)
    assert sealed.moved[two].total_bytes < sealed.whole.total_bytes


def test_a_release_of_other_tensors_is_no_start(parties: Parties) -> None:
    sealer = ModelSealer(RUN, MOVES)
    smaller = Schema((TensorSpec(name="a", shape=(399,), layer="a"),))
    sealer.remember(smaller, release(0, 399), digest(release(0, 399)))

    assert not seal(sealer, 1, parties.coordinator).moved
