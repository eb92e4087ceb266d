"""A caller's address as gRPC tells it, made into the name that limits count by."""

import ipaddress
from urllib.parse import unquote

_IPV6_PREFIX = 64


def network_of(peer: str) -> str:
    """Return the address of a peer such as ``ipv4:192.0.2.1:4711``, an IPv6 one's /64 network.

    A household or a virtual machine is given a whole /64 and can call from any address in it. What
    is no address (a Unix socket) counts as it is.
    """
    _, _, rest = unquote(peer).partition(":")
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    # An IPv4 caller at a listener for both kinds.
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
