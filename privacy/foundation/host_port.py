"""``host:port``, as every address that something listens on, or is found at, is written."""

import re
from collections.abc import Sequence
from typing import NamedTuple

MOST_ADDRESSES = 8
"""More coordinators than stand by for one another; a device tries them all within 20 seconds."""

_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_LARGEST_PORT = 65535
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class HostPort(NamedTuple):
    """The host as written, an address of IPv6 in brackets, and the port; 0 takes a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in _LOOPBACK


def checked_host_port(name: str, address: str) -> HostPort:
    """Return the halves of an address such as ``127.0.0.1:8080`` or ``[::1]:0``; or ValueError."""
    match = _HOST_PORT.fullmatch(address)
    if match is None or int(match[2]) > _LARGEST_PORT:
        raise ValueError(
            f'{name} must be "host:port" with a port up to {_LARGEST_PORT}, got {address!r}'
        )
    return HostPort(match[1], int(match[2]))


def host_of(address: str) -> str:
    """Return the host of ``host:port``, an address of IPv6 without its brackets."""
    return address.rpartition(":")[0].strip("[]")


def checked_addresses(name: str, addresses: Sequence[str]) -> None:
    """Check a list of addresses to connect to, first preferred; ValueError names what is wrong.

    It has 1 to `MOST_ADDRESSES`, each once, and no port 0, at which nobody listens.
    """
    if not 1 <= len(addresses) <= MOST_ADDRESSES:
        raise ValueError(f"{name} must give 1 to {MOST_ADDRESSES} addresses, got {len(addresses)}")
    for index, address in enumerate(addresses):
        if checked_host_port(name, address).port == 0:
            raise ValueError(f"{name} must have a port from 1 to {_LARGEST_PORT}, got {address!r}")
        if address.casefold() in (before.casefold() for before in addresses[:index]):
            raise ValueError(f"{name} must give each address once, got {address!r} twice")
