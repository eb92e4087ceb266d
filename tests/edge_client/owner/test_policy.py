"""When a device works: each condition alone, unknown sensors, and windows over midnight."""

import time
from calendar import timegm
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_client.owner.policy import PolicySettings, Ready, Wait, decide, seconds_until_open
from edge_client.owner.sensors import Reading

GOOD = Reading(
    is_charging=True, is_idle=True, is_unmetered=True, battery_percent=80.0, temperature_c=40.0
)
EVERYTHING = PolicySettings(least_battery_percent=50, largest_temperature_c=45)


class FakeSensors:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.read_count = 0

    def read(self) -> Reading:
        self.read_count += 1
        return self.reading


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(hour: int, minute: int = 0, second: int = 0) -> float:
    return float(timegm((2026, 3, 14, hour, minute, second)))


def test_a_device_works_when_everything_holds() -> None:
    assert decide(EVERYTHING, FakeSensors(GOOD), at(12)) == Ready()


@pytest.mark.parametrize(
    ("worse", "reason"),
    [
        ({"is_charging": False}, "not charging"),
        ({"is_idle": False}, "not idle"),
        ({"is_unmetered": False}, "not on an unmetered network"),
        ({"battery_percent": 49.9}, "not charged to 50 %"),
        ({"temperature_c": 45.1}, "not below 45 °C"),
    ],
)
def test_each_condition_alone_keeps_a_device_waiting(worse: dict[str, Any], reason: str) -> None:
    sensors = FakeSensors(replace(GOOD, **worse))

    assert decide(EVERYTHING, sensors, at(12)) == Wait(reason, 60.0)


def test_a_condition_that_the_owner_dropped_is_not_asked_for() -> None:
    policy = PolicySettings(charging=False, idle=False, unmetered=False)
    sensors = FakeSensors(Reading(is_charging=False, is_idle=False, is_unmetered=False))

    assert decide(policy, sensors, at(12)) == Ready()


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("is_charging", "charging"),
        ("is_idle", "idle"),
        ("is_unmetered", "on an unmetered network"),
        ("battery_percent", "charged to 50 %"),
        ("temperature_c", "below 45 °C"),
    ],
)
def test_an_unknown_sensor_is_named_and_counts_as_the_owner_says(field: str, name: str) -> None:
    sensors = FakeSensors(replace(GOOD, **{field: None}))
    strict = msgspec.structs.replace(EVERYTHING, unknown="wait")

    assert decide(EVERYTHING, sensors, at(12)) == Ready((name,))
    verdict = decide(strict, sensors, at(12))
    assert isinstance(verdict, Wait)
    assert name in verdict.reason
    assert 'unknown = "allow"' in verdict.reason


def test_a_known_hindrance_outweighs_unknown_sensors() -> None:
    sensors = FakeSensors(Reading(is_idle=False))

    assert decide(PolicySettings(), sensors, at(12)) == Wait("not idle", 60.0)


@pytest.mark.parametrize(
    ("window", "hour", "minute", "seconds"),
    [
        ("22:00-06:30", 21, 59, 60),
        ("22:00-06:30", 22, 0, 0),
        ("22:00-06:30", 0, 0, 0),
        ("22:00-06:30", 6, 29, 0),
        ("22:00-06:30", 6, 30, 15.5 * 3600),
        ("09:00-17:00", 8, 0, 3600),
        ("09:00-17:00", 9, 0, 0),
        ("09:00-17:00", 16, 59, 0),
        ("09:00-17:00", 17, 0, 16 * 3600),
        ("00:00-00:01", 0, 1, 23 * 3600 + 59 * 60),
    ],
)
def test_a_window_may_cross_midnight(window: str, hour: int, minute: int, seconds: float) -> None:
    assert seconds_until_open(window, at(hour, minute)) == seconds


def test_seconds_of_the_minute_count() -> None:
    assert seconds_until_open("22:00-23:00", at(21, 59, 30)) == 30


def test_outside_the_window_no_sensor_is_read() -> None:
    sensors = FakeSensors(GOOD)

    verdict = decide(PolicySettings(window="22:00-06:00"), sensors, at(20))

    assert verdict == Wait("outside the time window 22:00-06:00", 7200.0)
    assert sensors.read_count == 0


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(0, 86_399))
def test_after_the_wait_the_window_is_open(start: int, end: int, second: int) -> None:
    if start == end:
        return
    window = f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"
    now = at(0) + second

    wait = seconds_until_open(window, now)

    # A second implementation: try every minute of the day from now on.
    inside = {(start + minute) % 1440 for minute in range((end - start) % 1440)}
    assert (wait == 0) == (second // 60 in inside)
    assert int((now + wait - at(0)) // 60) % 1440 in inside
    if wait:
        assert int((now + wait - 1 - at(0)) // 60) % 1440 not in inside


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('{"window": "25:00-06:00"}', "window must be like 22:00-06:30"),
        ('{"window": "22-6"}', "window must be like 22:00-06:30"),
        ('{"window": "09:00-09:00"}', "window must not be empty"),
        ('{"least_battery_percent": 101}', r"in \[0, 100\], got 101"),
        ('{"largest_temperature_c": 0}', r"in \(0, 150\), got 0"),
        ('{"unknown": "maybe"}', "unknown"),
        ('{"charging": 1}', "charging"),
        ('{"chargin": true}', "chargin"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: str, said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.json.decode(settings, type=PolicySettings)
