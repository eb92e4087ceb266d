"""Devices' refusals of a plan, as the log and the round's figures have them."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs

from privacy.noise.calibrated_settings import CentralNoise
from privacy.noise.settings import NoNoise, PrivacySettings
from server.coordinating.desk import DeviceDesk
from server.coordinating.work import Work
from server.devices.dispatcher import Dispatcher
from server.devices.membership import Membership
from server.records.failpoints import UNARMED
from server.records.operator_switch import OperatorSwitch
from tests.server.round_hands import round_in_hand

CENTRAL = CentralNoise(
    noise_multiplier=1.0, delta=1e-3, epsilon_budget=8.0, clipping_norm=1.0, adjacency="zero-out"
)


def desk_of(privacy: PrivacySettings) -> tuple[DeviceDesk, SimpleNamespace]:
    """Return a desk whose devices all have a lease of round 4, and that round's machine."""
    in_hand = round_in_hand(4)
    in_hand = replace(in_hand, plan=structs.replace(in_hand.plan, privacy=privacy))
    machine = SimpleNamespace(round_number=4)
    work = SimpleNamespace(
        intake=None,
        machine=machine,
        lease_of=lambda client, nonce: (client, in_hand),
        decline=lambda client: None,
    )
    desk = DeviceDesk(
        cast("Work", work),
        Dispatcher(lambda client, held: None, UNARMED),
        cast("Membership", None),
        cast("OperatorSwitch", None),
        asyncio.Event(),
    )
    return desk, machine


@pytest.mark.parametrize(("privacy", "lines"), [(NoNoise(), 3), (CENTRAL, 1)])
def test_where_no_noise_covers_a_count_one_line_a_round_tells_of_refused_plans(
    privacy: PrivacySettings, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk, machine = desk_of(privacy)

    for client in ("a", "b", "c"):
        desk.refuse_plan(client, bytes(16), "data_unusable")

    told = ["a device refused the plan of round 4"] * lines
    assert [record.getMessage() for record in caplog.records] == told
    # Another round is told of again.
    machine.round_number = 5
    desk.refuse_plan("a", bytes(16), "data_unusable")
    assert caplog.records[-1].getMessage() == "a device refused the plan of round 5"
