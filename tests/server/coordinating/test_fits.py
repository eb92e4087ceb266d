"""A fit has its own lease, for as long as its device is not needed for a round."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import cast

import msgspec
import pytest
from torch import Tensor

from models.settings.hypernetwork import EmbeddingFitSettings
from privacy.identities.certificates import CertifiedKey
from privacy.identities.party import Identity
from protos import federation_pb2 as pb
from server.coordinating.fits import Fits
from server.devices.refused_calls import RefusedError
from tests.server.round_hands import CountingSource, round_in_hand

NEW, OTHER = "device-0007", "device-0008"
SigningKeys = Callable[[str], Awaitable[Sequence[CertifiedKey]]]


async def no_keys(_: str) -> Sequence[CertifiedKey]:
    return []


async def keep_nothing(_: str, __: Tensor) -> None:
    raise AssertionError("nothing is to be kept here")


def made_fits(
    has_embedding: Callable[[str], bool] | None, signing_keys: SigningKeys = no_keys
) -> Fits:
    """Return fits of ten seconds, with a model at hand."""
    made = Fits(
        10.0,
        CountingSource().bytes,
        cast("Identity", None),  # nothing is opened here
        has_embedding=has_embedding,
        keep=keep_nothing,
        signing_keys=signing_keys,
    )
    made.in_hand = round_in_hand(4)
    return made


def take(fits: Fits, client: str, nonce: bytes, sealed: bytes = b"", *, now: float = 101.0) -> None:
    request = pb.SendEmbeddingRequest(lease_nonce=nonce, sealed=sealed)
    asyncio.run(fits.take(client, request, now))


@pytest.fixture
def fits() -> Fits:
    """Fits of embeddings, of which nobody has one."""
    return made_fits(lambda _: False)


@pytest.fixture
def personal_fits() -> Fits:
    """Fits of what devices keep to themselves, of which only they know."""
    return made_personal_fits()


def made_personal_fits(signing_keys: SigningKeys = no_keys) -> Fits:
    made, in_hand = made_fits(None, signing_keys), round_in_hand(4)
    plan = msgspec.structs.replace(
        in_hand.plan, kind="fit_personal", embedding_fit=EmbeddingFitSettings()
    )
    made.in_hand = replace(in_hand, plan=plan)
    return made


def lease(order: pb.WorkOrder | None) -> pb.Lease:
    assert order is not None
    return order.lease


def test_a_device_gets_one_fit_with_a_deadline_of_its_own(fits: Fits) -> None:
    first = lease(fits.work_for(NEW, 100.0, 5_000))
    again = lease(fits.work_for(NEW, 104.0, 9_000))
    other = lease(fits.work_for(OTHER, 100.0, 5_000))

    assert (first.nonce, first.remaining_ms, first.deadline_ms) == (again.nonce, 10_000, 15_000)
    assert (again.remaining_ms, again.deadline_ms) == (6_000, 15_000)
    assert fits.nonces == {first.nonce, other.nonce}


def test_a_fit_is_its_devices_own_and_ends_at_its_deadline(fits: Fits) -> None:
    nonce = lease(fits.work_for(NEW, 100.0, 0)).nonce

    assert fits.lease_of(NEW, nonce, 109.0) is not None
    assert fits.lease_of(OTHER, nonce, 109.0) is None
    assert fits.lease_of(NEW, bytes(16), 109.0) is None
    with pytest.raises(RefusedError, match="time is over"):
        fits.lease_of(NEW, nonce, 110.0)
    assert lease(fits.work_for(NEW, 110.0, 0)).nonce != nonce


def test_a_fit_under_way_goes_on_with_its_own_model(fits: Fits) -> None:
    nonce = lease(fits.work_for(NEW, 100.0, 0)).nonce

    fits.in_hand = round_in_hand(5)

    running = fits.lease_of(NEW, nonce, 101.0)
    assert running is not None
    assert running[1].round_number == 4
    assert lease(fits.work_for(OTHER, 101.0, 0)).round_number == 5


def test_a_drawn_device_fits_no_more(fits: Fits) -> None:
    nonce = lease(fits.work_for(NEW, 100.0, 0)).nonce

    fits.end(NEW)

    assert fits.lease_of(NEW, nonce, 101.0) is None
    with pytest.raises(RefusedError) as refused:
        take(fits, NEW, nonce)
    assert refused.value.code == "unknown_lease"


def test_a_device_that_declines_is_not_asked_again(fits: Fits) -> None:
    fits.decline(OTHER)  # It had no fit: it declined something else.
    fits.work_for(NEW, 100.0, 0)

    fits.decline(NEW)

    assert fits.work_for(NEW, 101.0, 0) is None
    assert fits.work_for(OTHER, 101.0, 0) is not None


def test_without_a_trained_model_nothing_is_fitted(fits: Fits) -> None:
    fits.in_hand = None

    assert fits.work_for(NEW, 100.0, 0) is None


def test_who_has_an_embedding_fits_none() -> None:
    fits = made_fits(lambda name: name == OTHER)
    for name in (NEW, OTHER):
        fits.note(name, lacks_personal=True)

    assert fits.work_for(OTHER, 100.0, 0) is None
    assert fits.work_for(NEW, 100.0, 0) is not None


def test_a_device_that_says_it_lacks_a_model_fits_one_until_it_has_it(personal_fits: Fits) -> None:
    fits = personal_fits
    assert fits.work_for(NEW, 100.0, 0) is None
    fits.note(NEW, lacks_personal=True)
    nonce = lease(fits.work_for(NEW, 100.0, 0)).nonce

    take(fits, NEW, nonce)

    assert fits.nonces == set()
    assert fits.work_for(NEW, 101.0, 0) is None
    # The answer was lost: the same again changes nothing, and nobody else's is known.
    take(fits, NEW, nonce)
    with pytest.raises(RefusedError):
        take(fits, OTHER, nonce)
    # It lost its model, and says so; then it has one again.
    fits.note(NEW, lacks_personal=True)
    assert fits.work_for(NEW, 102.0, 0) is not None
    fits.note(NEW, lacks_personal=False)
    assert fits.work_for(NEW, 103.0, 0) is None


def test_a_drawn_device_gets_its_model_by_training_or_else_by_another_fit(
    personal_fits: Fits,
) -> None:
    personal_fits.note(NEW, lacks_personal=True)
    nonce = lease(personal_fits.work_for(NEW, 100.0, 0)).nonce

    personal_fits.end(NEW)

    # Its round may come to nothing; only an update that counts shows that it has a model.
    assert personal_fits.lease_of(NEW, nonce, 101.0) is None
    assert lease(personal_fits.work_for(NEW, 101.0, 0)).nonce != nonce
    personal_fits.end(NEW)
    personal_fits.note(NEW, lacks_personal=False)
    assert personal_fits.work_for(NEW, 102.0, 0) is None


def test_an_embedding_may_come_too_late_and_what_stays_on_its_device_may_not(
    fits: Fits, personal_fits: Fits
) -> None:
    personal_fits.note(NEW, lacks_personal=True)
    nonces = [lease(made.work_for(NEW, 100.0, 0)).nonce for made in (fits, personal_fits)]

    with pytest.raises(RefusedError, match="time is over"):
        take(fits, NEW, nonces[0], now=110.0)
    take(personal_fits, NEW, nonces[1], now=110.0)

    assert personal_fits.work_for(NEW, 111.0, 0) is None


def test_a_fit_that_sends_nothing_takes_nothing(personal_fits: Fits) -> None:
    personal_fits.note(NEW, lacks_personal=True)
    nonce = lease(personal_fits.work_for(NEW, 100.0, 0)).nonce

    with pytest.raises(RefusedError, match="3 bytes came of a fit that sends nothing"):
        take(personal_fits, NEW, nonce, sealed=b"abc")
    take(personal_fits, NEW, nonce)


def test_what_arrives_is_finished_though_its_device_goes_and_comes_again() -> None:
    asked: list[str] = []

    async def act() -> set[bytes]:
        answered = asyncio.Event()

        async def slow_keys(client: str) -> Sequence[CertifiedKey]:
            asked.append(client)
            await answered.wait()
            return []

        fits = made_personal_fits(slow_keys)
        fits.note(NEW, lacks_personal=True)
        nonce = lease(fits.work_for(NEW, 100.0, 0)).nonce
        request = pb.SendEmbeddingRequest(lease_nonce=nonce)
        gone = asyncio.create_task(fits.take(NEW, request, 101.0))
        again = asyncio.create_task(fits.take(NEW, request, 102.0))
        await asyncio.sleep(0)
        gone.cancel()
        answered.set()
        # The fit's time is over by now, and what arrived in time counts.
        await again
        await fits.take(NEW, request, 120.0)
        return fits.nonces

    assert asyncio.run(act()) == set()
    assert asked == [NEW]
