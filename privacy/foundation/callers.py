"""A caller's address, made into the name that limits count by."""

import ipaddress
from urllib.parse import unquote

_IPV6_PREFIX = 64


def network_of(peer: str) -> str:
    """Return the network of a peer as gRPC names it, such as ``ipv4:192.0.2.1:4711``.

    A peer without an address (a Unix socket) counts as it is.
    """
    _, _, rest = unquote(peer).partition(":")
    try:
        return network_of_address(rest.rpartition(":")[0].strip("[]"))
    except ValueError:
        return peer


def network_of_address(host: str) -> str:
    """Return an IPv4 address as it is, and the /64 network of an IPv6 one.

    A household or a virtual machine is given a whole /64 and can call from any address in it.

    Raises:
        ValueError: If the host is no address.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    # An IPv4 caller at a listener for both kinds.
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
