"""Settings of the three listeners."""

import msgspec

from privacy.foundation.host_port import checked_host_port


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The addresses at which devices and the operator reach the coordinator.

    Attributes:
        enrolment: ``host:port`` of the listener for enrolment; port 0 takes a free one.
        devices: ``host:port`` of the listener for enrolled devices (mutual TLS).
        public_host: Name or address of this machine in the coordinator's certificate and the
            invites. Absent: the host of ``devices``.
        admin_socket: Unix socket of the operator, relative to the coordinator's folder; with
            PostgreSQL its name in a folder of each machine's own, or an absolute path.
    """

    enrolment: str = "127.0.0.1:7440"
    devices: str = "127.0.0.1:7441"
    public_host: str | None = None
    admin_socket: str = "admin.sock"

    def __post_init__(self) -> None:
        for name in ("enrolment", "devices"):
            checked_host_port(name, getattr(self, name))
        if self.enrolment == self.devices and not self.devices.endswith(":0"):
            raise ValueError(f"enrolment and devices must differ, got {self.devices!r} for both")
        if not self.admin_socket:
            raise ValueError("admin_socket must name a file, got an empty string")

    @property
    def advertised_host(self) -> str:
        """Return the host that invites and the coordinator's certificate name."""
        return self.public_host or self.devices.rpartition(":")[0].strip("[]")
