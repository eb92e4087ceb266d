"""Look at everything a device needs, one finding each, without changing anything."""

import asyncio
import importlib.util
import shutil
from collections.abc import Callable

from edge_client.folder.layout import DeviceFolder, DeviceFolderError
from edge_client.owner.example_ledger import ExampleLedgerError, read_spending
from edge_client.owner.finding import Finding
from edge_client.owner.floor import FloorError, read_floor
from edge_client.owner.floor_in_words import floor_in_words
from edge_client.owner.pinned_helper import helper_in_words
from edge_client.owner.policy import Wait, decide
from edge_client.owner.sensors import system_sensors
from edge_client.owner.settings import ClientSettingsError, read_client_settings
from models.plan.signed_plan import SignedPlan, SignedPlanError
from models.plugins.loaded import load_plugins
from models.plugins.names import PluginError
from privacy.foundation.host_port import host_of
from privacy.identities.certificates import CertificateError, check_host, read_certificate
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity

_DAY_S = 86_400
_CONNECT_TIMEOUT_S = 5.0
_LEAST_FREE_BYTES = 1 << 30


async def examine(
    folder: DeviceFolder, *, now: float, passphrase: bytes | None = None
) -> list[Finding]:
    """Return a finding for each thing a device needs; ``now`` is seconds since 1970 UTC."""
    local: list[tuple[str, Callable[[], str]]] = [
        ("enrolment", lambda: f"enrolled as {folder.enrolment().client_name}"),
        ("certificates", lambda: _certificates(folder, now, passphrase)),
        ("settings", lambda: _settings(folder)),
        ("floor", lambda: _floor(folder)),
        ("plugins", lambda: _plugins(folder)),
        ("helper", lambda: _helper(folder)),
        ("policy", lambda: _policy(folder, now)),
        ("last plan", lambda: _last_plan(folder)),
        ("training", _training),
        ("example privacy", lambda: _example_privacy(folder)),
        ("personalisation", lambda: _personalisation(folder)),
        ("disk", lambda: _disk(folder)),
    ]
    findings = [_finding(subject, look) for subject, look in local]
    return [*findings, await _coordinator(folder)]


class _UnwellError(Exception):
    """Raised when a look finds something that keeps the device from working."""


_UNWELL = (
    CertificateError,
    ClientSettingsError,
    DeviceFolderError,
    ExampleLedgerError,
    FloorError,
    KeyFileError,
    OSError,
    PluginError,
    SignedPlanError,
    _UnwellError,
)


def _finding(subject: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, True, look())
    except _UNWELL as error:
        return Finding(subject, False, str(error))


def _certificates(folder: DeviceFolder, now: float, passphrase: bytes | None) -> str:
    identity = Identity.load(folder.identity, passphrase)
    identity.check_time(now)
    # These may have expired while the device was away: the next lease names others.
    coordinator = folder.coordinator()
    for der in (coordinator.wrapping, coordinator.signing):
        read_certificate(der)
    days = (identity.tls.certified.not_after - now) / _DAY_S
    renewal = "due for renewal at the next check-in" if identity.due_for_renewal(now) else "fresh"
    return f"valid for {days:.0f} more days, {renewal}"


def _settings(folder: DeviceFolder) -> str:
    settings = read_client_settings(folder.client_settings)
    return f"training process kept for {settings.keep_warm_s:g} s"


def _floor(folder: DeviceFolder) -> str:
    floor = read_floor(folder.floor)
    return (
        f"accepts noise modes {', '.join(sorted(floor.modes))}. {' '.join(floor_in_words(floor))}"
    )


def _plugins(folder: DeviceFolder) -> str:
    names = load_plugins(read_floor(folder.floor).plugins)
    return f"{', '.join(map(str, names))}: installed" if names else "the floor names none"


def _helper(folder: DeviceFolder) -> str:
    pinned = read_floor(folder.floor).helpers
    enrolment = folder.enrolment()
    good, told = helper_in_words(
        enrolment.helper_certificate, pinned, authority=enrolment.ca_certificate
    )
    if not good:
        raise _UnwellError(told)
    return told


def _policy(folder: DeviceFolder, now: float) -> str:
    policy = read_client_settings(folder.client_settings).policy
    verdict = decide(policy, system_sensors(), now)
    # Waiting is no fault: the device is doing what its owner asked.
    if isinstance(verdict, Wait):
        return f"waits: {verdict.reason}"
    unknown = f"; no sensor knows whether: {', '.join(verdict.unknown)}" if verdict.unknown else ""
    return f"may work now{unknown}"


def _last_plan(folder: DeviceFolder) -> str:
    """Check the proof of what the coordinator asked for, as a third party would.

    A plan that was refused since then is told of instead, until one is taken.
    """
    refused = folder.refused()
    if refused:
        raise _UnwellError(f"{refused}. Until a plan is taken, this stands here")
    kept = folder.signed_plan()
    if kept is None:
        return "no round has come yet"
    told = SignedPlan.decode(kept)
    told.check(folder.enrolment().ca_certificate)
    return (
        f"round {told.round_number}, attempt {told.attempt}: signed by the coordinator; SHA-256 of "
        f"the plan {told.plan_sha256.hex()}"
    )


def _training() -> str:
    if importlib.util.find_spec("torch") is None:
        raise _UnwellError("torch is not installed; install sotto[train]")
    return "torch is installed"


def _example_privacy(folder: DeviceFolder) -> str:
    spent = read_spending(folder.example_ledger)
    if not spent.round_count:
        return "no round has spent any"
    return (
        f"epsilon {spent.epsilon:.2f} at delta {spent.delta:g} for one sentence, over "
        f"{spent.round_count} rounds"
    )


def _personalisation(folder: DeviceFolder) -> str:
    travel = folder.travel()
    if travel is None:
        return "no round has said yet what travels"
    current = folder.personal.current
    if not current.exists():
        return travel
    kept_bytes, adapted = current.stat().st_size, folder.adapted()
    told = "" if adapted is None else f"; {adapted}"
    return f"{travel}; a personal model of {kept_bytes:,} bytes is kept in {current}{told}"


def _disk(folder: DeviceFolder) -> str:
    try:
        free = shutil.disk_usage(folder.path).free
    except FileNotFoundError:
        raise _UnwellError(f"{folder.path} is missing; `sotto-client enrol` makes it") from None
    if free < _LEAST_FREE_BYTES:
        raise _UnwellError(f"{free >> 20} MiB free; a round wants {_LEAST_FREE_BYTES >> 20} MiB")
    return f"{free >> 30} GiB free"


async def _coordinator(folder: DeviceFolder) -> Finding:
    """Connect to each address, and look whether the coordinator's certificate names its host."""
    subject = "coordinator"
    try:
        settings = read_client_settings(folder.client_settings)
        addresses = settings.addresses or folder.enrolment().device_addresses
        known = folder.known_coordinator()
        if known is not None and known.tls:
            for address in addresses:
                check_host(known.tls, host_of(address))
    except _UNWELL as error:
        return Finding(subject, False, str(error))
    looks = await asyncio.gather(*(_look_at(address) for address in addresses))
    # One is enough: those that stand by refuse every connection.
    return Finding(subject, any(good for good, _ in looks), "; ".join(told for _, told in looks))


async def _look_at(address: str) -> tuple[bool, str]:
    """Open a TCP connection to a device listener; the handshake is left to check-in."""
    connecting = asyncio.open_connection(host_of(address), int(address.rpartition(":")[2]))
    try:
        _, writer = await asyncio.wait_for(connecting, _CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        return False, f"{address} cannot be reached: {error or 'no answer'}"
    writer.close()
    await writer.wait_closed()
    return True, f"{address} answers"
