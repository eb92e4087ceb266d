"""``host:port``, as every address that something listens on is written."""

import re
from typing import NamedTuple

_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_LARGEST_PORT = 65535


class HostPort(NamedTuple):
    """The host as written, an address of IPv6 in brackets, and the port; 0 takes a free one."""

    host: str
    port: int


def checked_host_port(name: str, address: str) -> HostPort:
    """Return the halves of an address such as ``127.0.0.1:8080`` or ``[::1]:0``; or ValueError."""
    match = _HOST_PORT.fullmatch(address)
    if match is None or int(match[2]) > _LARGEST_PORT:
        raise ValueError(
            f'{name} must be "host:port" with a port up to {_LARGEST_PORT}, got {address!r}'
        )
    return HostPort(match[1], int(match[2]))
