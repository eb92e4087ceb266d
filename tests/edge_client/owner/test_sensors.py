"""What psutil's answers are taken to mean; psutil is given, so that no test needs a phone."""

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from edge_client.owner.sensors import PsutilSensors, Reading


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Replace what psutil says about this machine by a dictionary of answers."""
    answers: dict[str, object] = {
        "sensors_battery": None,
        "users": [],
        "net_if_stats": {},
        "sensors_temperatures": {},
    }
    for name in list(answers):
        monkeypatch.setattr(psutil, name, partial(answers.get, name), raising=False)
    return answers


def test_what_cannot_be_known_is_none(machine: dict[str, object]) -> None:
    assert PsutilSensors().read() == Reading(is_idle=True)


def test_a_battery_tells_charge_and_mains(machine: dict[str, object]) -> None:
    machine["sensors_battery"] = SimpleNamespace(percent=40, power_plugged=False)

    reading = PsutilSensors().read()

    assert (reading.battery_percent, reading.is_charging) == (40.0, False)


def test_the_hottest_chip_counts(machine: dict[str, object]) -> None:
    chips = [SimpleNamespace(current=41.0), SimpleNamespace(current=63.5)]
    machine["sensors_temperatures"] = {"cpu": chips, "disk": [SimpleNamespace(current=30.0)]}

    assert PsutilSensors().read().temperature_c == 63.5


@pytest.mark.parametrize(
    ("name", "is_up", "known"),
    [("wwan0", True, False), ("wwan0", False, None), ("wlan0", True, None)],
)
def test_a_cellular_link_is_metered_and_wifi_may_be(
    machine: dict[str, object], name: str, is_up: bool, known: bool | None
) -> None:
    machine["net_if_stats"] = {"lo": SimpleNamespace(isup=True), name: SimpleNamespace(isup=is_up)}

    assert PsutilSensors().read().is_unmetered is known


def test_a_terminal_is_idle_five_minutes_after_its_last_key(machine: dict[str, object]) -> None:
    leader, follower = os.openpty()
    path = Path(os.ttyname(follower))
    machine["users"] = [SimpleNamespace(terminal=str(path.relative_to("/dev")))]
    last_key = path.stat().st_atime

    early = PsutilSensors(lambda: last_key + 299).read()
    late = PsutilSensors(lambda: last_key + 300).read()

    os.close(leader)
    os.close(follower)
    assert (early.is_idle, late.is_idle) == (False, True)


def test_somebody_at_a_display_may_be_idle_or_not(machine: dict[str, object]) -> None:
    machine["users"] = [SimpleNamespace(terminal=":0")]

    assert PsutilSensors().read().is_idle is None
