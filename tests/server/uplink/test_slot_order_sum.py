"""One update that cannot count expires with its reason; the others make the round."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs
from numpy.typing import NDArray
from sqlalchemy import select

from models.settings.model import schema_of
from privacy.identities.party import Identity
from privacy.noise.calibrated_settings import CentralNoise
from privacy.noise.settings import PaperServerNoise
from server.aggregation.settings import MeanSettings
from server.closing.close import noise_generator
from server.devices.device_certificates import StoredCertificate, add_certificates
from server.downlink.attempt_in_hand import RoundInHand
from server.machine.answers import Close, Lease
from server.records.attempts import OpenAttempt
from server.records.contributions import Verified, contributions_of, keep_contributions
from server.records.inbox import Inbox
from server.records.store import Store
from server.records.tables import contributions
from server.releases.method_state import method_state_of
from server.uplink.slot_order_sum import RoundSum
from tests.server.conftest import NAMES
from tests.server.sealing import Parties, configure, make_parties, round_in_hand, round_sum_of, send

CONFIG = configure()
ELEMENTS = schema_of(CONFIG.model).element_count
CENTRAL = CentralNoise(
    noise_multiplier=1.0,
    delta=1e-3,
    epsilon_budget=100.0,
    clipping_norm=100.0,
    adjacency="zero-out",
)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("parties"), NAMES)


@pytest.fixture
def in_hand(parties: Parties) -> RoundInHand:
    return round_in_hand(CONFIG, parties.coordinator)


@pytest.fixture
def round_sum(store: Store, inbox: Inbox, parties: Parties, first_round: OpenAttempt) -> RoundSum:
    """Sum round 1 of three devices whose signing keys are known."""
    with store.write() as connection:
        for name, device in zip(NAMES, parties.devices, strict=True):
            add_certificates(connection, name, [signing(device)], now=20.0)
    return round_sum_of(CONFIG, store, inbox, parties.coordinator, method_state_of(CONFIG))


def signing(device: Identity) -> StoredCertificate:
    certified = device.signing.certified
    return StoredCertificate(certified.sha256, "signing", certified.der, certified.not_after)


@pytest.fixture
def acknowledge(
    store: Store, inbox: Inbox, parties: Parties, in_hand: RoundInHand, tmp_path: Path
) -> "Acknowledge":
    return Acknowledge(store, inbox, parties, in_hand, tmp_path / "upload.part")


class Acknowledge:
    """Put updates into the round without the look that the commit takes at them."""

    def __init__(
        self, store: Store, inbox: Inbox, parties: Parties, in_hand: RoundInHand, partial: Path
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._parties = parties
        self.in_hand = in_hand
        self._partial = partial

    def __call__(self, slot: int, update: NDArray[np.float32]) -> None:
        lease = Lease(bytes([slot + 1]) * 16, NAMES[slot], 1, 0, slot, 60.0)
        device = self._parties.devices[slot]
        sealed = send(
            self._partial,
            self.in_hand,
            update,
            context=self.in_hand.uplink_context(NAMES[slot], slot, lease.nonce),
            sender=device,
            recipient=self._parties.coordinator,
        )
        (outcome,) = keep_contributions(
            self._store,
            self._inbox,
            [Verified(self._partial, lease, sealed.message_id, device.signing.certified.sha256, 7)],
            now=120.0,
        )
        if outcome is not None:
            raise outcome


def filled(value: float) -> NDArray[np.float32]:
    return np.full(ELEMENTS, value, dtype=np.float32)


def order(store: Store) -> Close:
    receipts = tuple(stored.receipt for stored in contributions_of(store, 1, 0))
    return Close(1, 0, 3, receipts)


def expired(store: Store) -> dict[str, str]:
    with store.read() as connection:
        rows = connection.execute(select(contributions).where(contributions.c.state == "expired"))
        return {row.client: row.reason for row in rows}


@pytest.mark.slow
def test_the_mean_of_what_was_acknowledged_moves_the_model(
    store: Store, in_hand: RoundInHand, round_sum: RoundSum, acknowledge: Acknowledge
) -> None:
    for slot, value in enumerate((1.0, 2.0, 6.0)):
        acknowledge(slot, filled(value))

    closed = round_sum.close(order(store), in_hand, torch.zeros(ELEMENTS))

    assert closed is not None
    assert set(closed.parameters.tolist()) == {3.0}
    assert expired(store) == {}


@pytest.mark.slow
def test_the_papers_noise_is_not_what_the_plans_seed_draws(
    store: Store, in_hand: RoundInHand, round_sum: RoundSum, acknowledge: Acknowledge
) -> None:
    noisy = PaperServerNoise(randomisation_magnitude=0.5, clipping_norm=100.0)
    in_hand = replace(in_hand, plan=structs.replace(in_hand.plan, privacy=noisy))
    acknowledge.in_hand = in_hand
    for slot in range(3):
        acknowledge(slot, filled(0.0))

    first, again = (round_sum.close(order(store), in_hand, torch.zeros(ELEMENTS)) for _ in range(2))

    assert first is not None
    assert again is not None
    known = torch.empty(ELEMENTS).normal_(generator=noise_generator(CONFIG.seed, 1)) * 0.5
    # Every pair of draws is as far apart as two that know nothing of each other: √2 · 0.5 an
    # element. The mean of 66 squares is three times that, or a third, once in a million rounds.
    for one, other in ((first.parameters, again.parameters), (first.parameters, known)):
        assert 0.5 / 3 < float((one - other).square().mean()) < 0.5 * 3


@pytest.fixture
def central_sum(store: Store, inbox: Inbox, parties: Parties, round_sum: RoundSum) -> RoundSum:
    """Sum the same round under ``central``; its devices' keys are known by now."""
    weights = MeanSettings(weighting="equal")
    config = structs.replace(CONFIG, privacy=CENTRAL, aggregation=weights)
    return round_sum_of(config, store, inbox, parties.coordinator, method_state_of(config))


@pytest.mark.slow
def test_where_no_noise_covers_a_count_the_log_tells_none_and_no_reason(
    store: Store,
    in_hand: RoundInHand,
    central_sum: RoundSum,
    acknowledge: Acknowledge,
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_hand = replace(in_hand, plan=structs.replace(in_hand.plan, privacy=CENTRAL))
    for slot, value in enumerate((0.0, 1e30, 1e30)):
        acknowledge(slot, filled(value))

    central_sum.close(order(store), in_hand, torch.zeros(ELEMENTS))

    assert [record.getMessage() for record in caplog.records] == [
        "round 1: not every update counts"
    ]
    assert set(expired(store).values()) == {"it did not count"}


@pytest.mark.slow
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_update_too_large_to_aggregate_expires_and_the_others_count(
    store: Store, in_hand: RoundInHand, round_sum: RoundSum, acknowledge: Acknowledge, bad: int
) -> None:
    for slot in range(3):
        acknowledge(slot, filled(1e38 if slot == bad else 2.0))

    closed = round_sum.close(order(store), in_hand, torch.zeros(ELEMENTS))

    assert closed is not None
    assert closed.contribution_count == 2
    assert closed.parameters.tolist() == pytest.approx([2.0] * ELEMENTS)
    assert expired(store) == {
        NAMES[bad]: "it could not be aggregated under the settings of its round"
    }


@pytest.mark.slow
def test_a_sealed_file_that_no_longer_opens_expires_and_the_others_count(
    store: Store,
    inbox: Inbox,
    in_hand: RoundInHand,
    round_sum: RoundSum,
    acknowledge: Acknowledge,
) -> None:
    for slot in range(3):
        acknowledge(slot, filled(2.0))
    path = inbox.path(contributions_of(store, 1, 0)[1].blob)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    closed = round_sum.close(order(store), in_hand, torch.zeros(ELEMENTS))

    assert closed is not None
    assert closed.contribution_count == 2
    assert expired(store) == {NAMES[1]: "its sealed file no longer opens"}


def test_below_the_quorum_there_is_no_outcome(
    store: Store, in_hand: RoundInHand, round_sum: RoundSum, acknowledge: Acknowledge
) -> None:
    acknowledge(0, filled(1e38))
    acknowledge(1, filled(2.0))

    assert round_sum.close(order(store), in_hand, torch.zeros(ELEMENTS)) is None
    assert list(expired(store)) == [NAMES[0]]
