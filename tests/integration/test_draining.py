"""A coordinator that is told to drain finishes its round with the devices that the round is for."""

import os
import signal
import time

import grpc
import pytest

from server.operating.commands import Federation as Operated
from tests.integration.conftest import Make
from tests.integration.device import Device, code_of, next_lease
from tests.integration.federation import Federation


def drain(federation: Federation) -> None:
    Operated(federation.root).drain()


def refusal_of(device: Device) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        next(iter(device.check_in()))
    return code_of(caught.value)


def wait_ended(federation: Federation) -> None:
    """Wait until the coordinator has ended by itself."""
    assert federation.process is not None
    federation.process.join(100)
    assert federation.process.exitcode == 0, federation.log


def test_a_drained_round_waits_for_those_who_were_drawn_and_for_nobody_else(
    make_federation: Make,
) -> None:
    federation = make_federation(cohort=3, quorum=2)
    federation.start()
    here, lost, late = federation.enrol(3)
    first, second = here.check_in(), lost.check_in()
    here.take_part(next_lease(first))
    lease = next_lease(second)
    second.cancel()
    (outsider,) = federation.enrol(1)

    drain(federation)

    assert refusal_of(outsider) == "draining"
    # It has committed: the next round is not for today.
    assert refusal_of(here) == "draining"
    again = next_lease(lost.check_in())
    assert again.nonce == lease.nonce
    lost.take_part(again)
    late.take_part(next_lease(late.check_in()))
    wait_ended(federation)
    (release,) = federation.releases()
    assert release.contribution_count == 3


def test_a_signal_says_what_the_coordinator_waits_for_and_a_second_one_ends_it(
    make_federation: Make,
) -> None:
    federation = make_federation(cohort=2, quorum=2)
    federation.start()
    first, second = [device.check_in() for device in federation.enrol(2)]
    next_lease(first)
    next_lease(second)
    assert federation.process is not None
    pid = federation.process.pid
    assert pid is not None

    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 60
    while "ending after round 1, due in " not in federation.log:
        assert time.monotonic() < deadline, federation.log
        time.sleep(0.05)

    assert federation.process.is_alive()
    os.kill(pid, signal.SIGTERM)
    federation.process.join(60)
    assert not federation.process.is_alive()
