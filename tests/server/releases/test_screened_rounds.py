"""What the deployed coordinator sets aside, and a robust rule over sealed updates."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models.settings.model import schema_of
from server.config.federation import FederationConfig
from server.devices.device_certificates import add_certificates
from server.downlink.attempt_in_hand import RoundInHand
from server.records.attempts import OpenAttempt
from server.records.inbox import Inbox
from server.records.store import Store
from server.releases.files import ReleaseFolder
from server.releases.method_state import method_state_of
from server.releases.publishing import NO_PREVIOUS, release_round
from tests.server.conftest import NAMES
from tests.server.releases.test_publishing import MakeRelease
from tests.server.sealing import Parties, configure, make_parties, round_in_hand, round_sum_of
from tests.server.uplink.test_slot_order_sum import Acknowledge, expired, order, signing

NORMS = "norm_factor = 3.01\n"
SCREENED = configure(privacy=f'mode = "none"\n[screening]\n{NORMS}')
MEDIAN = configure(
    aggregation='rule = "median"\n', rounds="cap = 9\ncohort_size = 3\nquorum = 3\ndeadline_s = 9.0"
)
ELEMENTS = schema_of(SCREENED.model).element_count
ROOT = math.sqrt(ELEMENTS)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("parties"), NAMES)


class Coordinator:
    """Sum round 1 of three devices under some settings."""

    def __init__(
        self, config: FederationConfig, store: Store, inbox: Inbox, parties: Parties, partial: Path
    ) -> None:
        self.in_hand: RoundInHand = round_in_hand(config, parties.coordinator)
        self.acknowledge = Acknowledge(store, inbox, parties, self.in_hand, partial)
        self.sum = round_sum_of(config, store, inbox, parties.coordinator, method_state_of(config))


Coordinate = Callable[[FederationConfig], Coordinator]


@pytest.fixture
def coordinate(
    store: Store, inbox: Inbox, parties: Parties, first_round: OpenAttempt, tmp_path: Path
) -> Coordinate:
    """Return what makes a coordinator of round 1 that knows the devices' signing keys."""
    with store.write() as connection:
        for name, device in zip(NAMES, parties.devices, strict=True):
            add_certificates(connection, name, [signing(device)], now=20.0)
    return lambda config: Coordinator(config, store, inbox, parties, tmp_path / "upload.part")


@pytest.fixture
def norm_of_one(store: Store, releases: ReleaseFolder, new_release: MakeRelease) -> None:
    """Release initial parameters that have left a typical norm of 1."""
    initial = new_release(0, NO_PREVIOUS)
    initial.metrics["next_typical_norm"] = 1.0
    release_round(store, releases, initial, None, opened_at=100.0, now=160.0)


def filled(norm: float) -> NDArray[np.float32]:
    return np.full(ELEMENTS, norm / ROOT, dtype=np.float32)


@pytest.mark.slow
@pytest.mark.usefixtures("norm_of_one")
def test_a_norm_far_above_what_the_last_release_left_expires_and_the_others_count(
    store: Store, coordinate: Coordinate
) -> None:
    # As after a restart: nothing is known but what the store holds.
    coordinator = coordinate(SCREENED)
    for slot, norm in enumerate((2.0, 3.1, 2.9)):
        coordinator.acknowledge(slot, filled(norm))

    closed = coordinator.sum.close(order(store), coordinator.in_hand, torch.zeros(ELEMENTS))

    assert closed is not None
    assert closed.screened == {"norm": 1}
    assert closed.contribution_count == 2
    assert float(closed.parameters.norm()) == pytest.approx(4.9 / 2, rel=1e-5)
    # Half of the way from 1 to the median of 2.9.
    assert closed.next_typical_norm == pytest.approx(math.sqrt(2.9), rel=1e-5)
    # The row says no more than that it could not count.
    assert expired(store) == {
        NAMES[1]: "it could not be aggregated under the settings of its round"
    }


@pytest.mark.slow
@pytest.mark.usefixtures("norm_of_one")
def test_an_attempt_that_fell_short_has_taught_the_next_one(
    store: Store, coordinate: Coordinate
) -> None:
    coordinator = coordinate(SCREENED)
    base = torch.zeros(ELEMENTS)
    for slot in range(3):
        coordinator.acknowledge(slot, filled(9.0))
    closing = order(store)

    with pytest.raises(ValueError, match="at least one client update"):
        coordinator.sum.close(closing, coordinator.in_hand, base)
    closed = coordinator.sum.close(closing, coordinator.in_hand, base)

    # Half of the way from 1 to 9 is 3, and three times that lets 9 pass, a hair for rounding.
    assert closed is not None
    assert closed.screened == {}


@pytest.mark.slow
def test_the_median_of_sealed_updates_moves_the_model_and_nothing_is_left_on_disk(
    store: Store, inbox: Inbox, coordinate: Coordinate
) -> None:
    coordinator = coordinate(MEDIAN)
    rising = np.arange(ELEMENTS, dtype=np.float32)
    for slot, update in enumerate((rising, -1e6 * rising, rising + 1)):
        coordinator.acknowledge(slot, update)
    before = sorted(inbox.folder.rglob("*"))

    closed = coordinator.sum.close(order(store), coordinator.in_hand, torch.zeros(ELEMENTS))

    assert closed is not None
    assert closed.parameters.tolist() == rising.tolist()
    assert sorted(inbox.folder.rglob("*")) == before
