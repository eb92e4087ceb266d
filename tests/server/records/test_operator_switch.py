"""What the operator told the coordinator, over restarts."""

from pathlib import Path

from server.records.operator_switch import OperatorSwitch


def test_a_pause_survives_a_restart_and_a_drain_does_not(tmp_path: Path) -> None:
    mark = tmp_path / "paused"
    switch = OperatorSwitch(mark)
    assert not switch.is_paused

    switch.pause()
    switch.pause()
    switch.drain()

    again = OperatorSwitch(mark)
    assert again.is_paused
    assert not again.is_draining
    again.resume()
    again.resume()
    assert not OperatorSwitch(mark).is_paused
