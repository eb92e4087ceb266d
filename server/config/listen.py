"""Settings of the listeners."""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address

import msgspec

from privacy.foundation.host_port import checked_addresses, checked_host_port, host_of

_NAME = re.compile("[A-Za-z0-9.-]+")


def checked_hosts(name: str, hosts: Sequence[str]) -> None:
    """Check names or addresses of machines, first preferred; ValueError says what is wrong."""
    for host in hosts:
        if not _is_host(host):
            raise ValueError(f"{name} must be a name or an address without a port, got {host!r}")
    checked_addresses(name, [joined(host, "1") for host in hosts])


def joined(host: str, port: str) -> str:
    """Return ``host:port``, an address of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _NAME.fullmatch(host) is not None
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The addresses at which devices and the operator reach the coordinator.

    Attributes:
        enrolment: ``host:port`` of the listener for enrolment; port 0 takes a free one.
        devices: ``host:port`` of the listener for enrolled devices (mutual TLS).
        public_host: Name or address of this machine, or a list of those of all that may serve, at
            the same ports and as devices try them, in the coordinator's certificate and the
            invites. Absent: the host of ``devices``.
        admin_socket: Unix socket of the operator, relative to the coordinator's folder; with
            PostgreSQL its name in a folder of each machine's own, or an absolute path.
        metrics: ``host:port`` of figures for Prometheus, in the clear and for everybody who reaches
            it, so on loopback if nothing else protects it; absent means nowhere.
    """

    enrolment: str = "127.0.0.1:7440"
    devices: str = "127.0.0.1:7441"
    public_host: str | tuple[str, ...] | None = None
    admin_socket: str = "admin.sock"
    metrics: str | None = None

    def __post_init__(self) -> None:
        for name in ("enrolment", "devices"):
            checked_host_port(name, getattr(self, name))
        if self.enrolment == self.devices and not self.devices.endswith(":0"):
            raise ValueError(f"enrolment and devices must differ, got {self.devices!r} for both")
        if self.metrics is not None:
            checked_host_port("metrics", self.metrics)
            if self.metrics in (self.enrolment, self.devices) and not self.metrics.endswith(":0"):
                raise ValueError(
                    "metrics must have an address of its own, other than enrolment's and devices', "
                    f"got {self.metrics!r}"
                )
        if isinstance(self.public_host, tuple):
            checked_hosts("public_host", self.public_host)
        if not self.admin_socket:
            raise ValueError("admin_socket must name a file, got an empty string")

    @property
    def shows_metrics_elsewhere(self) -> bool:
        """Return whether other machines may reach the figures for Prometheus."""
        address = self.metrics
        return address is not None and not checked_host_port("metrics", address).is_loopback

    @property
    def advertised_hosts(self) -> tuple[str, ...]:
        """Return the hosts that invites and the coordinator's certificate name, in order."""
        if not self.public_host:
            return (host_of(self.devices),)
        return (self.public_host,) if isinstance(self.public_host, str) else self.public_host
