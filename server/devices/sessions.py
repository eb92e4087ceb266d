"""Keep one open stream per device, and push work orders down it.

A second check-in ends the older stream with ``identity_in_use``: a device that lost its connection
is served at once, and two agents with one identity learn of it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError

OTHER = "other"
"""Stands for a version that is not shown."""

# What an operator's screen may show of words that anybody may have sent.
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,24}")


class Session:
    """One device's open stream; ``nonce`` is of the last lease pushed to it, until that ends.

    ``version`` is what the device said of its software. ``is_over`` once its last order was pushed.
    """

    def __init__(self, client: str, version: str = "") -> None:
        self.client = client
        self.version = version if _VERSION.fullmatch(version) else OTHER
        self.nonce: bytes | None = None
        self.is_over = False
        self._orders: asyncio.Queue[pb.WorkOrder | RefusedError] = asyncio.Queue()

    def push(self, order: pb.WorkOrder) -> None:
        """Send an order; one with ``retry_after`` is the stream's last."""
        self.is_over = self.is_over or order.HasField("retry_after")
        self._orders.put_nowait(order)

    def refuse(self, refused: RefusedError) -> None:
        """End the stream with a refusal."""
        self._orders.put_nowait(refused)

    async def orders(self) -> AsyncIterator[pb.WorkOrder]:
        """Yield orders as they are pushed.

        Raises:
            RefusedError: If the stream is ended with a refusal.
        """
        while True:
            order = await self._orders.get()
            if isinstance(order, RefusedError):
                raise order
            is_last = order.HasField("retry_after")
            yield order
            if is_last:
                return
            # A lease has the plan and three certificates, which a resting stream need not hold.
            del order


class Sessions:
    """Every open stream by client name."""

    def __init__(self) -> None:
        self._by_client: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._by_client)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_client.values()))

    def get(self, client: str) -> Session | None:
        """Return the client's stream, or None when it is away."""
        return self._by_client.get(client)

    def open(self, client: str, version: str = "") -> Session:
        """Return a new stream for the client and end its older one."""
        older = self._by_client.get(client)
        if older is not None:
            older.refuse(
                RefusedError(
                    RefusalCode.IDENTITY_IN_USE,
                    f"{client} checked in again from elsewhere; one identity serves one agent",
                )
            )
        session = Session(client, version)
        self._by_client[client] = session
        return session

    def close(self, session: Session) -> bool:
        """Forget a stream; return whether it was the client's current one."""
        if self._by_client.get(session.client) is not session:
            return False
        del self._by_client[session.client]
        return True
