"""The facts that a device can find out about itself before it works for others.

A sensor that cannot know says None, and the policy's rule for that decides: guessing "idle" on a
phone in use, or "unmetered" on a phone contract, costs its owner.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

# Nobody has touched a terminal for this long.
_IDLE_S = 300.0
# Names that Linux gives to cellular and dial-up links.
_METERED_LINKS = ("wwan", "ppp", "rmnet", "wwp")


@dataclass(frozen=True)
class Reading:
    """Readings, None if unknown: charge 0 to 100, highest temperature in degrees Celsius."""

    is_charging: bool | None = None
    is_idle: bool | None = None
    is_unmetered: bool | None = None
    battery_percent: float | None = None
    temperature_c: float | None = None


class Sensors(Protocol):
    """Sensors of what the device knows about itself."""

    def read(self) -> Reading:
        """Return what is known now."""
        ...


class PsutilSensors:
    """Sensors by psutil: battery, mains, temperatures, terminals, cellular links."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Compare idle times by ``clock``, seconds since 1970 UTC."""
        self._clock = clock

    def read(self) -> Reading:
        """Return what is known now; a machine without a battery may not know that it has none."""
        battery = psutil.sensors_battery()
        return Reading(
            is_charging=None if battery is None else battery.power_plugged,
            is_idle=self._is_idle(),
            is_unmetered=_is_unmetered(),
            battery_percent=None if battery is None else float(battery.percent),
            temperature_c=_temperature_c(),
        )

    def _is_idle(self) -> bool | None:
        """Return whether every terminal rests; None where somebody uses a display instead."""
        last_inputs = []
        for user in psutil.users():
            terminal = Path("/dev") / (user.terminal or "")
            if user.terminal is None or not terminal.is_char_device():
                return None
            with contextlib.suppress(FileNotFoundError):  # logged out in between
                last_inputs.append(terminal.stat().st_atime)
        return all(self._clock() - last >= _IDLE_S for last in last_inputs)


def system_sensors() -> Sensors:
    """Return the sensors of the device that this runs on."""
    return PsutilSensors()


def _is_unmetered() -> bool | None:
    """Return False on a cellular link that is up; else None: Wi-Fi may be a phone's."""
    links = psutil.net_if_stats()
    metered = any(link.isup and name.startswith(_METERED_LINKS) for name, link in links.items())
    return False if metered else None


def _temperature_c() -> float | None:
    if sys.platform != "linux":  # psutil reads temperatures nowhere else that sotto runs
        return None
    readings = psutil.sensors_temperatures().values()
    return max((chip.current for chips in readings for chip in chips), default=None)
