"""A fit has its own lease, for as long as its device is not needed for a round."""

from typing import cast

import pytest

from privacy.identity import Identity
from protos import federation_pb2 as pb
from server.answering import RefusedError
from server.embedding_fits import EmbeddingFits
from tests.server.round_hands import CountingSource, round_in_hand

NEW, OTHER = "device-0007", "device-0008"


@pytest.fixture
def fits() -> EmbeddingFits:
    """Fits of ten seconds, with a model at hand."""
    nobody = cast("Identity", None)  # nothing is opened here
    made = EmbeddingFits(10.0, CountingSource().bytes, nobody)
    made.in_hand = round_in_hand(4)
    return made


def lease(order: pb.WorkOrder | None) -> pb.Lease:
    assert order is not None
    return order.lease


def test_a_device_gets_one_fit_with_a_deadline_of_its_own(fits: EmbeddingFits) -> None:
    first = lease(fits.work_for(NEW, 100.0, 5_000))
    again = lease(fits.work_for(NEW, 104.0, 9_000))
    other = lease(fits.work_for(OTHER, 100.0, 5_000))

    assert (first.nonce, first.remaining_ms, first.deadline_ms) == (again.nonce, 10_000, 15_000)
    assert (again.remaining_ms, again.deadline_ms) == (6_000, 15_000)
    assert fits.nonces == {first.nonce, other.nonce}


def test_a_fit_is_its_devices_own_and_ends_at_its_deadline(fits: EmbeddingFits) -> None:
    nonce = lease(fits.work_for(NEW, 100.0, 0)).nonce

    assert fits.lease_of(NEW, nonce, 109.0) is not None
    assert fits.lease_of(OTHER, nonce, 109.0) is None
    assert fits.lease_of(NEW, bytes(16), 109.0) is None
    with pytest.raises(RefusedError, match="time is over"):
        fits.lease_of(NEW, nonce, 110.0)
    assert lease(fits.work_for(NEW, 110.0, 0)).nonce != nonce


def test_a_fit_under_way_goes_on_with_its_own_model(fits: EmbeddingFits) -> None:
    nonce = lease(fits.work_for(NEW, 100.0, 0)).nonce

    fits.in_hand = round_in_hand(5)

    running = fits.lease_of(NEW, nonce, 101.0)
    assert running is not None
    assert running[1].round_number == 4
    assert lease(fits.work_for(OTHER, 101.0, 0)).round_number == 5


def test_a_drawn_device_fits_no_more_and_a_finished_one_is_known(fits: EmbeddingFits) -> None:
    nonce = lease(fits.work_for(NEW, 100.0, 0)).nonce

    fits.end(NEW)
    assert fits.lease_of(NEW, nonce, 101.0) is None
    assert not fits.is_done(NEW, nonce)
    nonce = lease(fits.work_for(NEW, 101.0, 0)).nonce
    fits.finish(NEW)

    assert fits.is_done(NEW, nonce)
    assert not fits.is_done(OTHER, nonce)
    assert fits.nonces == set()


def test_a_device_that_declines_is_not_asked_again(fits: EmbeddingFits) -> None:
    fits.decline(OTHER)  # It had no fit: it declined something else.
    fits.work_for(NEW, 100.0, 0)

    fits.decline(NEW)

    assert fits.work_for(NEW, 101.0, 0) is None
    assert fits.work_for(OTHER, 101.0, 0) is not None


def test_without_a_trained_model_nothing_is_fitted(fits: EmbeddingFits) -> None:
    fits.in_hand = None

    assert fits.work_for(NEW, 100.0, 0) is None
