"""Draw the nonces of leases, so that a restarted coordinator gives a device the one it had.

Leases are not stored, and their nonces are sealed into updates: with fresh ones after a restart,
every device in mid-round would train again. They derive from the coordinator's secret, so nobody
else can tell them.
"""

import hashlib
import hmac
from collections.abc import Callable

NONCE_BYTES = 16
SECRET_BYTES = 32

NonceDraw = Callable[[int, int, str, int], bytes]
"""Return 16 bytes for a lease, given round, attempt, client name and slot."""


def derived_nonces(secret: bytes) -> NonceDraw:
    """Return a draw that gives equal leases equal nonces, from a secret of 32 random bytes.

    Raises:
        ValueError: If the secret has another size.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"secret must have {SECRET_BYTES} bytes, got {len(secret)}")

    def draw(round_number: int, attempt: int, client: str, slot: int) -> bytes:
        # The name comes last: the numbers before it cannot be mistaken for a part of it.
        text = f"{round_number}/{attempt}/{slot}/{client}"
        return hmac.digest(secret, text.encode(), hashlib.sha256)[:NONCE_BYTES]

    return draw
