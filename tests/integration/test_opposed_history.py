"""A coordinator remembers, over a restart too, where its model has been going."""

import numpy as np

from server.releases.files import read_release
from tests.integration.conftest import Make
from tests.integration.device import Device, Orders, next_lease, wait_finished
from tests.integration.federation import Federation
from tests.integration.real_device import await_rounds

BY_HISTORY = """
rule = "trimmed-attentive"
trim_by = "history"
trim_share = 0.4
attention_strength = 0.0
"""
# Of the first two parameters; the others stay as they are. In round 2 all go upwards, and
# nobody opposes the others; the first two step back a little from where all went before.
MOVES = {
    1: [(2.0, 0.0), (2.0, 0.0), (2.0, 0.0), (2.0, 0.0), (2.0, 0.0)],
    2: [(-0.1, 1.0), (-0.1, 1.0), (0.1, 1.0), (0.3, 1.0), (0.5, 1.0)],
}


def take_part(devices: list[Device], round_number: int) -> Orders:
    """Let every device send its move of a round, and return what the first hears."""
    orders = [device.check_in() for device in devices]
    leases = [next_lease(order) for order in orders]
    for device, lease, move in zip(devices, leases, MOVES[round_number], strict=True):
        assert lease.round_number == round_number
        device.receive(lease)
        update = np.zeros_like(device.update_for(lease))
        update[:2] = move
        assert device.send(lease, *device.seal_update(lease, update)) == round_number
    return orders[0]


def moved(federation: Federation, round_number: int) -> list[float]:
    """Return how far a round moved the first three parameters."""
    before, after = (
        read_release(federation.folder.releases / f"{number:06d}").parameters
        for number in (round_number - 1, round_number)
    )
    steps: list[float] = (after - before)[:3].astype(np.float64).round(5).tolist()
    return steps


def test_who_opposes_what_was_learnt_before_a_restart_does_not_count(
    make_federation: Make,
) -> None:
    federation = make_federation(cap=2, cohort=5, quorum=5, rule=BY_HISTORY)
    federation.start()
    devices = federation.enrol(5)
    take_part(devices, 1)
    await_rounds(federation, 1)
    federation.kill()
    federation.start()
    for device in devices:
        device.close()
        device.connect()
    wait_finished(take_part(devices, 2))
    federation.stop()

    assert [release.contribution_count for release in federation.releases()] == [5, 5]
    assert moved(federation, 1) == [2.0, 0.0, 0.0]
    # Of those who went on to the right: (0.1 + 0.3 + 0.5) / 3.
    assert moved(federation, 2) == [0.3, 1.0, 0.0]
