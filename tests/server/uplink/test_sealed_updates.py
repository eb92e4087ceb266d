"""What the coordinator looks at before it acknowledges an update."""

import resource
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from models.compression.update_format import update_format, update_formats
from models.settings.compression import CompressionSettings
from models.settings.model import schema_of
from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError
from server.downlink.attempt_in_hand import RoundInHand
from server.uplink.intake_settings import intake_settings
from server.uplink.sealed_payloads import SealedUpdate
from server.uplink.sealed_updates import UpdateOpener
from tests.server.sealing import (
    Parties,
    configure,
    make_parties,
    round_in_hand,
    seal_into,
    send,
)

CLEAN = 'mode = "paper"\nrandomisation_magnitude = 0.1\nscore = "clean"\nclipping_norm = 1.0\n'


class Send(Protocol):
    """Send an update of device-0001."""

    def __call__(
        self, update: NDArray[np.float32], last_element: float | None = None
    ) -> SealedUpdate: ...


CONFIG = configure(privacy=CLEAN)
SCHEMA = schema_of(CONFIG.model)
NONCE = bytes(range(16))


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("parties"), ("device-0001",))


@pytest.fixture
def in_hand(parties: Parties) -> RoundInHand:
    return round_in_hand(CONFIG, parties.coordinator)


@pytest.fixture
def opener(parties: Parties, in_hand: RoundInHand) -> UpdateOpener:
    measure = intake_settings(CONFIG).measure
    return UpdateOpener(
        update_formats(in_hand.plan), parties.coordinator, measure=measure, buffer_count=1
    )


@pytest.fixture
def sent(parties: Parties, in_hand: RoundInHand, tmp_path: Path) -> Send:
    def make(update: NDArray[np.float32], last_element: float | None = None) -> SealedUpdate:
        return send(
            tmp_path / "update.sealed",
            in_hand,
            update,
            last_element=last_element,
            context=in_hand.uplink_context("device-0001", 0, NONCE),
            sender=parties.devices[0],
            recipient=parties.coordinator,
        )

    return make


def upload(value: float, *norms: float) -> NDArray[np.float32]:
    """Return an update of one value everywhere, and clean norms; those left out are 0."""
    count = len(SCHEMA.tensors)
    padded = [*norms, *[0.0] * (count - len(norms))]
    return np.array([value] * SCHEMA.element_count + padded, dtype=np.float32)


@pytest.mark.slow
def test_a_sound_update_is_lent_and_its_signer_told(
    opener: UpdateOpener, sent: Send, parties: Parties
) -> None:
    sealed = sent(upload(0.5, 1.0))

    with opener.opened(sealed) as (update, signer):
        assert set(update[: SCHEMA.element_count].tolist()) == {0.5}

    assert signer == opener.check(sealed) == parties.devices[0].signing.certified.sha256


@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "rule"),
    [
        # Any one element of 2e18 is above the largest usable norm, 1e18; its square is 4e36.
        (upload(2e18), "L2 norm <= 1e"),
        (upload(3e38), "L2 norm <= 1e"),
        (upload(0.5, 1.5), "clean norms"),
        (upload(0.5, -0.1), "clean norms"),
        (upload(0.5, 3e38), "clean norms"),
    ],
    ids=["2e18", "3e38", "norm-above-the-clip", "norm-below-zero", "norm-of-3e38"],
)
def test_an_update_that_could_not_be_aggregated_is_refused_before_it_counts(
    opener: UpdateOpener, sent: Send, update: NDArray[np.float32], rule: str
) -> None:
    sealed = sent(update)

    with pytest.raises(RefusedError, match=rule) as refused:
        opener.check(sealed)

    assert refused.value.code is RefusalCode.MALFORMED_UPDATE
    # The one buffer is back: the next update opens.
    opener.check(sent(upload(0.5)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_payload_that_is_not_finite_is_refused(
    opener: UpdateOpener, sent: Send, value: float
) -> None:
    with pytest.raises(RefusedError, match="finite") as refused:
        opener.check(sent(upload(0.5), value))

    assert refused.value.code is RefusalCode.MALFORMED_UPDATE


def test_a_compressed_update_is_lent_as_it_was_sent_and_a_hostile_one_refused(
    parties: Parties, in_hand: RoundInHand, tmp_path: Path
) -> None:
    # Values of 0.5 come back exactly: the scale is 0.5 / 7, and each number 7.
    plan = msgspec.structs.replace(in_hand.plan, compression=CompressionSettings(uplink="int4"))
    compressed = replace(in_hand, plan=plan)
    travels_as = update_format(plan, compressed.round_number)
    opener = UpdateOpener(
        update_formats(plan),
        parties.coordinator,
        measure=intake_settings(CONFIG).measure,
        buffer_count=1,
    )
    context = compressed.uplink_context("device-0001", 0, NONCE)
    payload = bytearray(travels_as.encode(upload(0.5, 0.25), seed=1))

    def sealed() -> SealedUpdate:
        path = tmp_path / "update.sealed"
        return seal_into(path, payload, context, parties.devices[0], parties.coordinator)

    sound = sealed()
    assert sound.path.stat().st_size == compressed.upload_bytes
    opener.check(sound)
    with opener.opened(sound) as (update, _):
        np.testing.assert_allclose(update.numpy(), upload(0.5, 0.25), rtol=1e-6)

    for damage, rule in ((np.nan, "a scale must lie in"), (0.0, "a scale must lie in")):
        start = 48 + 4 * len(SCHEMA.tensors)
        payload[start : start + 4] = np.float32(damage).tobytes()
        with pytest.raises(RefusedError, match=rule) as refused:
            opener.check(sealed())
        assert refused.value.code is RefusalCode.MALFORMED_UPDATE


def test_an_entropy_coded_update_has_a_size_of_its_own_within_the_plans(
    parties: Parties, in_hand: RoundInHand, tmp_path: Path
) -> None:
    settings = CompressionSettings(uplink="int8", entropy="zstd")
    compressed = replace(in_hand, plan=msgspec.structs.replace(in_hand.plan, compression=settings))
    travels_as = update_format(compressed.plan, compressed.round_number)
    opener = UpdateOpener(
        update_formats(compressed.plan),
        parties.coordinator,
        measure=intake_settings(CONFIG).measure,
        buffer_count=1,
    )
    context = compressed.uplink_context("device-0001", 0, NONCE)

    def sealed(payload: bytearray) -> SealedUpdate:
        path = tmp_path / "update.sealed"
        return seal_into(path, payload, context, parties.devices[0], parties.coordinator)

    sound = bytearray(travels_as.encode(upload(0.5, 0.25), seed=1))
    found = sealed(sound)
    compressed.check_upload_size(found.path.stat().st_size)
    assert found.path.stat().st_size < compressed.upload_bytes
    opener.check(found)
    with opener.opened(found) as (update, _):
        np.testing.assert_allclose(update.numpy(), upload(0.5, 0.25), rtol=1e-6)

    longer = sealed(sound + bytes(1))
    with pytest.raises(RefusedError) as refused:
        opener.check(longer)
    assert refused.value.code is RefusalCode.MALFORMED_UPDATE
    too_long = sealed(bytearray(travels_as.payload_bytes + 1))
    with pytest.raises(RefusedError, match="no update has") as refused:
        opener.check(too_long)
    assert refused.value.code is RefusalCode.WRONG_SIZE
    with pytest.raises(ValueError, match=r"total_bytes must be \d+ to \d+, got"):
        compressed.check_upload_size(too_long.path.stat().st_size)
    # The one buffer is back, and holds nothing of what was refused.
    opener.check(sealed(sound))


def test_an_update_of_another_slot_nonce_or_message_does_not_open(
    opener: UpdateOpener, sent: Send
) -> None:
    sealed = sent(upload(0.5))
    others = [
        replace(sealed, context=replace(sealed.context, slot=1)),
        replace(sealed, context=replace(sealed.context, lease_nonce=bytes(16))),
        replace(sealed, message_id=bytes(16)),
        replace(sealed, senders=[]),
    ]

    for other in others:
        with pytest.raises(RefusedError) as refused:
            opener.check(other)
        assert refused.value.code is RefusalCode.UNSEAL_FAILED


def test_an_empty_file_does_not_open(opener: UpdateOpener, sent: Send) -> None:
    sealed = sent(upload(0.5))
    sealed.path.write_bytes(b"")

    with pytest.raises(RefusedError) as refused:
        opener.check(sealed)

    assert refused.value.code is RefusalCode.UNSEAL_FAILED


def test_an_update_that_is_still_at_hand_is_not_opened_again(
    opener: UpdateOpener, sent: Send
) -> None:
    sealed = sent(upload(0.5, 1.0))
    opener.check(sealed)
    sealed.path.unlink()

    with opener.opened(sealed) as (update, _):
        assert float(update[0]) == 0.5

    # Another message of the same lease is another update, and takes the only buffer.
    other = replace(sealed, message_id=bytes(16))
    with pytest.raises(FileNotFoundError):
        opener.check(other)
    with pytest.raises(FileNotFoundError):
        opener.check(sealed)


def test_what_was_summed_is_not_at_hand(opener: UpdateOpener, sent: Send) -> None:
    sealed = sent(upload(0.5, 1.0))
    opener.check(sealed)
    sealed.path.unlink()

    opener.forget()

    with pytest.raises(FileNotFoundError):
        opener.check(sealed)


def test_what_did_not_open_is_not_at_hand(opener: UpdateOpener, sent: Send) -> None:
    sealed = sent(upload(0.5, 1.0), last_element=float("nan"))

    for _ in range(2):
        with pytest.raises(RefusedError) as caught:
            opener.check(sealed)
        assert caught.value.code is RefusalCode.MALFORMED_UPDATE


def test_an_acknowledged_update_is_not_lost_for_want_of_a_descriptor(
    opener: UpdateOpener, sent: Send
) -> None:
    sealed = sent(upload(0.01, 0.1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # From here on nothing opens in this process.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            opened_of(opener, sealed)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert opened_of(opener, sealed) == [pytest.approx(0.01)]


def opened_of(opener: UpdateOpener, sealed: SealedUpdate) -> list[float | None]:
    with (
        opener.workers() as workers,
        opener.ahead([sealed], lambda update: float(update[0]), workers) as opened,
    ):
        return list(opened)


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_sealed_updates_come_in_their_order_from_any_number_of_workers_around_a_broken_one(
    parties: Parties, in_hand: RoundInHand, tmp_path: Path, workers: int
) -> None:
    files = []
    for slot in range(6):
        files.append(
            send(
                tmp_path / f"{slot}.sealed",
                in_hand,
                upload(slot / 8),
                context=in_hand.uplink_context("device-0001", slot, NONCE),
                sender=parties.devices[0],
                recipient=parties.coordinator,
            )
        )
    broken = files[2].path.read_bytes()
    files[2].path.write_bytes(broken[:-1] + bytes([broken[-1] ^ 1]))
    files[4].path.unlink()
    opener = UpdateOpener(
        update_formats(in_hand.plan),
        parties.coordinator,
        buffer_count=64,
        worker_count=workers,
    )

    for _ in range(2):
        with (
            opener.workers() as crew,
            opener.ahead(files, lambda update: float(update[0]), crew) as opened,
        ):
            assert crew.count == workers
            assert list(opened) == [0.0, 1 / 8, None, 3 / 8, None, 5 / 8]
        opener.forget()
