"""What a method learns from a round is learnt once, and only if the round has an outcome."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models.vector.schema import SENT
from models.vector.tensor_file import decode_tensors
from server.devices.device_certificates import add_certificates
from server.downlink.attempt_in_hand import RoundInHand
from server.records.attempts import OpenAttempt
from server.records.inbox import Inbox
from server.records.store import Store
from server.releases.method_state import MethodState, method_state_of
from server.uplink.slot_order_sum import RoundSum
from tests.server.conftest import NAMES
from tests.server.fedtp import CONFIG, SHARED
from tests.server.sealing import Parties, make_parties, round_in_hand, round_sum_of
from tests.server.uplink.test_slot_order_sum import Acknowledge, order, signing


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("parties"), NAMES)


@pytest.fixture
def in_hand(parties: Parties) -> RoundInHand:
    return round_in_hand(CONFIG, parties.coordinator)


@pytest.fixture
def method() -> MethodState:
    return method_state_of(CONFIG)


@pytest.fixture
def round_sum(
    store: Store,
    inbox: Inbox,
    parties: Parties,
    method: MethodState,
    first_round: OpenAttempt,
) -> RoundSum:
    with store.write() as connection:
        for name, device in zip(NAMES, parties.devices, strict=True):
            add_certificates(connection, name, [signing(device)], now=20.0)
    return round_sum_of(CONFIG, store, inbox, parties.coordinator, method)


@pytest.fixture
def acknowledge(
    store: Store, inbox: Inbox, parties: Parties, in_hand: RoundInHand, tmp_path: Path
) -> Acknowledge:
    return Acknowledge(store, inbox, parties, in_hand, tmp_path / "upload.part")


def filled(value: float) -> NDArray[np.float32]:
    return np.full(CONFIG.schema.with_roles(*SENT).element_count, value, dtype=np.float32)


def rows(method: MethodState) -> list[str]:
    encoded = method.encoded()
    assert encoded is not None
    return [name for name in decode_tensors(encoded)[0] if name.startswith("client/")]


@pytest.mark.slow
def test_those_whose_update_counts_have_a_row(
    store: Store,
    in_hand: RoundInHand,
    round_sum: RoundSum,
    acknowledge: Acknowledge,
    method: MethodState,
) -> None:
    for slot in range(3):
        acknowledge(slot, filled(1e38 if slot == 1 else 0.1))

    closed = round_sum.close(order(store), in_hand, torch.zeros(SHARED.element_count))

    assert closed is not None
    assert closed.contribution_count == 2
    assert rows(method) == [f"client/{NAMES[0]}", f"client/{NAMES[2]}"]


def test_a_round_without_an_outcome_teaches_nothing(
    store: Store,
    in_hand: RoundInHand,
    round_sum: RoundSum,
    acknowledge: Acknowledge,
    method: MethodState,
) -> None:
    before = method.encoded()
    acknowledge(0, filled(1e38))
    acknowledge(1, filled(0.1))

    # One usable update of the two that the quorum asks for: it was taken and closed all the same.
    assert round_sum.close(order(store), in_hand, torch.zeros(SHARED.element_count)) is None
    assert method.encoded() == before
