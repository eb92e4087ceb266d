"""Say whether a helper can be reached, and when its certificates have to be renewed."""

import asyncio
import time

from privacy.identities.certificates import CertifiedKey, certificate_time

_CONNECT_S = 2.0


async def helper_told(address: str, helper: CertifiedKey, *, now: float | None = None) -> str:
    """Return a line on a helper at ``host:port``; ``helper`` is its wrapping key.

    Only a TCP connection is opened: the handshake is left to the close. ``now`` is in Unix
    seconds, the clock's if None.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        told = f"{address} cannot be reached: rounds wait for it until their deadline"
    else:
        writer.close()
        told = f"{address} answers"
    if (time.time() if now is None else now) < helper.renewal_due_at:
        return told
    return (
        f"{told}; its certificates end at {certificate_time(helper.not_after)}: ask its owner for "
        "`sotto-helper renew`"
    )
