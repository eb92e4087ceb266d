"""When a device works for the federation: only when its owner does not notice.

The decision is a function of settings, sensors and the time: the agent asks again after the seconds
that a refusal names. `PolicySettings.unknown` says what a sensor that does not know counts as, and
the verdict names it.
"""

import re
import time
from dataclasses import dataclass
from typing import Literal

import msgspec

from edge_client.owner.sensors import Reading, Sensors

_RECHECK_S = 60.0
_DAY_MINUTES = 24 * 60
_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conditions under which a device works; an absent limit is none.

    Attributes:
        charging: Whether mains power must be connected.
        idle: Whether nobody may be using the device.
        unmetered: Whether traffic must cost nothing.
        least_battery_percent: Least charge, 0 to 100.
        largest_temperature_c: Highest temperature inside, in degrees Celsius.
        window: Local time of day such as ``22:00-06:30``, end excluded, past midnight allowed.
        unknown: How a sensor that does not know counts: as ``allow``, for machines such as desktops
            that cannot tell whether they are idle, or as ``wait``.
    """

    charging: bool = True
    idle: bool = True
    unmetered: bool = True
    least_battery_percent: float | None = None
    largest_temperature_c: float | None = None
    window: str | None = None
    unknown: Literal["allow", "wait"] = "allow"

    def __post_init__(self) -> None:
        percent = self.least_battery_percent
        if percent is not None and not 0 <= percent <= 100:
            raise ValueError(f"least_battery_percent must be in [0, 100], got {percent}")
        temperature = self.largest_temperature_c
        if temperature is not None and not 0 < temperature < 150:
            raise ValueError(f"largest_temperature_c must be in (0, 150), got {temperature}")
        if self.window is not None:
            start, end = window_minutes(self.window)
            if start == end:
                raise ValueError(
                    f"window must not be empty, got {self.window}; omit it for all day"
                )


@dataclass(frozen=True)
class Ready:
    """The device may work; the settings allowed ``unknown`` conditions, which had no sensor."""

    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wait:
    """The device must not work now: the missing condition, and the seconds until it asks again."""

    reason: str
    seconds: float


Verdict = Ready | Wait


def decide(policy: PolicySettings, sensors: Sensors, now: float) -> Verdict:
    """Return whether the device may work at ``now``, seconds since 1970 UTC.

    Sensors are read only inside the time window, so that a waiting device stays asleep.
    """
    if policy.window is not None:
        until_open_s = seconds_until_open(policy.window, now)
        if until_open_s > 0:
            return Wait(f"outside the time window {policy.window}", until_open_s)
    conditions = _conditions(policy, sensors.read())
    unmet = [name for name, holds in conditions.items() if holds is False]
    if unmet:
        return Wait(f"not {unmet[0]}", _RECHECK_S)
    unknown = tuple(name for name, holds in conditions.items() if holds is None)
    if unknown and policy.unknown == "wait":
        return Wait(
            f"no sensor knows whether the device is {unknown[0]}; where that is acceptable, "
            'set unknown = "allow"',
            _RECHECK_S,
        )
    return Ready(unknown)


def seconds_until_open(window: str, now: float) -> float:
    """Return 0 inside a time window, else seconds until it opens; a clock change shifts it."""
    start, end = window_minutes(window)
    local = time.localtime(now)
    minute = local.tm_hour * 60 + local.tm_min
    since_start = (minute - start) % _DAY_MINUTES
    if since_start < (end - start) % _DAY_MINUTES:
        return 0.0
    return float((_DAY_MINUTES - since_start) * 60 - local.tm_sec)


def window_minutes(window: str) -> tuple[int, int]:
    """Return the start and end of ``HH:MM-HH:MM`` in minutes after midnight.

    Raises:
        ValueError: If the text is no such window.
    """
    match = _WINDOW.fullmatch(window)
    if match is None:
        raise ValueError(f"window must be like 22:00-06:30, got {window!r}")
    start_hour, start_minute, end_hour, end_minute = map(int, match.groups())
    return start_hour * 60 + start_minute, end_hour * 60 + end_minute


def _conditions(policy: PolicySettings, reading: Reading) -> dict[str, bool | None]:
    """Return each condition that the policy sets: whether it holds, None where unknown."""
    conditions: dict[str, bool | None] = {}
    if policy.charging:
        conditions["charging"] = reading.is_charging
    if policy.idle:
        conditions["idle"] = reading.is_idle
    if policy.unmetered:
        conditions["on an unmetered network"] = reading.is_unmetered
    if policy.least_battery_percent is not None:
        percent = reading.battery_percent
        conditions[f"charged to {policy.least_battery_percent:g} %"] = (
            None if percent is None else percent >= policy.least_battery_percent
        )
    if policy.largest_temperature_c is not None:
        temperature = reading.temperature_c
        conditions[f"below {policy.largest_temperature_c:g} °C"] = (
            None if temperature is None else temperature <= policy.largest_temperature_c
        )
    return conditions
