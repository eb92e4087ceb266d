"""Updates that are opened while they arrive, and what is left of those that never do."""

from pathlib import Path

import numpy as np
import pytest

from models.compression.update_format import update_formats
from models.settings.model import schema_of
from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError
from server.downlink.attempt_in_hand import RoundInHand
from server.uplink.intake_settings import intake_settings
from server.uplink.sealed_payloads import SealedUpdate
from server.uplink.sealed_updates import UpdateOpener
from tests.server.sealing import Parties, configure, make_parties, round_in_hand, send

CONFIG = configure(privacy='mode = "none"\nclipping_norm = 1.0\n')
ELEMENTS = schema_of(CONFIG.model).element_count
PIECE_BYTES = 1000


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("parties"), ("device-0001",))


@pytest.fixture
def in_hand(parties: Parties) -> RoundInHand:
    return round_in_hand(CONFIG, parties.coordinator)


def opener_of(parties: Parties, in_hand: RoundInHand, buffer_count: int) -> UpdateOpener:
    return UpdateOpener(
        update_formats(in_hand.plan),
        parties.coordinator,
        measure=intake_settings(CONFIG).measure,
        buffer_count=buffer_count,
    )


@pytest.fixture
def opener(parties: Parties, in_hand: RoundInHand) -> UpdateOpener:
    # One for what arrives, two for what is opened from its file.
    return opener_of(parties, in_hand, 3)


def sealed_update(
    folder: Path, parties: Parties, in_hand: RoundInHand, value: float = 0.5, slot: int = 0
) -> SealedUpdate:
    return send(
        folder / f"{slot}.sealed",
        in_hand,
        np.full(ELEMENTS, value, np.float32),
        context=in_hand.uplink_context("device-0001", slot, bytes([slot] * 16)),
        sender=parties.devices[0],
        recipient=parties.coordinator,
    )


def pieces(sealed: SealedUpdate) -> list[bytes]:
    content = sealed.path.read_bytes()
    return [content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]


def arrive(opener: UpdateOpener, sealed: SealedUpdate, parts: list[bytes]) -> None:
    arriving = opener.arriving(sealed)
    assert arriving is not None
    for part in parts:
        arriving.feed(part)
    arriving.close()


@pytest.mark.slow
def test_an_update_that_arrived_whole_is_checked_and_lent_without_its_file(
    opener: UpdateOpener, parties: Parties, in_hand: RoundInHand, tmp_path: Path
) -> None:
    sealed = sealed_update(tmp_path, parties, in_hand)
    arrive(opener, sealed, pieces(sealed))
    sealed.path.unlink()

    signer = opener.check(sealed)

    assert signer == parties.devices[0].signing.certified.sha256
    with opener.opened(sealed) as (update, _):
        assert set(update.tolist()) == {0.5}


@pytest.mark.parametrize("value", [float("nan"), 3e38])
def test_one_that_cannot_be_aggregated_is_refused_by_its_check(
    opener: UpdateOpener, parties: Parties, in_hand: RoundInHand, tmp_path: Path, value: float
) -> None:
    sealed = send(
        tmp_path / "update.sealed",
        in_hand,
        np.full(ELEMENTS, 0.5, np.float32),
        last_element=value,
        context=in_hand.uplink_context("device-0001", 0, bytes(16)),
        sender=parties.devices[0],
        recipient=parties.coordinator,
    )
    arrive(opener, sealed, pieces(sealed))

    with pytest.raises(RefusedError) as refused:
        opener.check(sealed)

    assert refused.value.code is RefusalCode.MALFORMED_UPDATE


def test_what_came_in_part_damaged_or_from_somebody_else_is_opened_from_its_file(
    opener: UpdateOpener, parties: Parties, in_hand: RoundInHand, tmp_path: Path
) -> None:
    sealed = sealed_update(tmp_path, parties, in_hand)
    whole = pieces(sealed)
    damaged = [*whole[:-1], whole[-1][:-1] + bytes([whole[-1][-1] ^ 1])]
    other = pieces(sealed_update(tmp_path, parties, in_hand, slot=1))

    for parts in (whole[:-1], damaged, other, []):
        arrive(opener, sealed, parts)
        hidden = sealed.path.rename(tmp_path / "hidden")
        with pytest.raises(FileNotFoundError):
            opener.check(sealed)
        hidden.rename(sealed.path)
    # Whatever went wrong, the memory is back, and what the file holds counts.
    arrive(opener, sealed, damaged)
    opener.check(sealed)


@pytest.mark.slow
def test_nothing_reaches_the_memory_after_the_end(
    opener: UpdateOpener, parties: Parties, in_hand: RoundInHand, tmp_path: Path
) -> None:
    sealed = sealed_update(tmp_path, parties, in_hand)
    whole = pieces(sealed)
    arriving = opener.arriving(sealed)
    assert arriving is not None

    arriving.feed(whole[0])
    arriving.close()
    for part in whole[1:]:
        arriving.feed(part)
    arriving.close()

    sealed.path.unlink()
    with pytest.raises(FileNotFoundError):
        opener.check(sealed)


def test_two_buffers_are_left_for_what_is_opened_from_its_file(
    parties: Parties, in_hand: RoundInHand, tmp_path: Path
) -> None:
    opener = opener_of(parties, in_hand, 4)
    updates = [sealed_update(tmp_path, parties, in_hand, slot=slot) for slot in range(4)]

    arriving = [opener.arriving(sealed) for sealed in updates]

    assert [one is not None for one in arriving] == [True, True, False, False]
    for sealed in updates[2:]:
        opener.check(sealed)
