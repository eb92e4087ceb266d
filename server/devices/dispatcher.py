"""Push work down the streams that devices hold open, and say when it has ended."""

from collections import Counter
from collections.abc import Callable, Collection

from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError
from server.devices.sessions import OTHER, Session, Sessions
from server.records.failpoints import Failpoint, Failpoints

_VERSIONS_SHOWN = 16


class Dispatcher:
    """A dispatcher that gives every connected device the work there is for it, once."""

    def __init__(
        self,
        work_for: Callable[[str, bytes | None], pb.WorkOrder | None],
        failpoints: Failpoints,
    ) -> None:
        """Give what ``work_for`` has for a client that holds the lease of a nonce, or none."""
        self._work_for = work_for
        self._failpoints = failpoints
        self._sessions = Sessions()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def clients(self) -> list[str]:
        """Return the names of all connected devices."""
        return [session.client for session in self._sessions]

    @property
    def versions(self) -> Counter[str]:
        """Return how many connected devices told each version of their software.

        Only the most frequent ones have an entry; the rest are `OTHER` together.
        """
        told = Counter(session.version for session in self._sessions)
        shown = Counter(dict(told.most_common(_VERSIONS_SHOWN)))
        if rest := told.total() - shown.total():
            shown[OTHER] += rest
        return shown

    def open(self, client: str, version: str = "") -> Session:
        """Return a new stream for a device, with the work there is for it."""
        session = self._sessions.open(client, version)
        self._offer(session)
        return session

    def close(self, session: Session) -> bool:
        """Forget a stream; return whether it was the device's current one."""
        return self._sessions.close(session)

    def offer_all(self) -> None:
        """Give work to every device that has none."""
        for session in self._sessions:
            self._offer(session)

    def offer(self, client: str, answered: bytes) -> None:
        """Note that a device has answered this lease, and give it work; a newer lease stays."""
        self.done(client, answered)
        session = self._sessions.get(client)
        if session is not None:
            self._offer(session)

    def done(self, client: str, answered: bytes | None = None) -> None:
        """Note that a device has answered its lease, which then ends without a message to it."""
        session = self._sessions.get(client)
        if session is not None and answered in (None, session.nonce):
            session.nonce = None

    def end_leases(
        self, reason: str, finished: Collection[str] = (), going_on: Collection[bytes] = ()
    ) -> None:
        """End all leases but those ``going_on``; devices not yet ``finished`` get the reason."""
        for session in self._sessions:
            if session.nonce in going_on:
                continue
            if session.nonce is not None and session.client not in finished:
                session.push(_ended(session.nonce, reason))
            session.nonce = None

    def dismiss_all(self, reason: str, seconds: int) -> None:
        """End every stream and say when to come back."""
        for session in self._sessions:
            session.push(come_back(reason, seconds))

    def expel(self, client: str) -> None:
        """End the stream of a device that was revoked."""
        session = self._sessions.get(client)
        if session is not None:
            session.refuse(RefusedError(RefusalCode.CERTIFICATE_REVOKED, f"{client} was revoked"))

    def _offer(self, session: Session) -> None:
        if session.is_over:
            # Each of a crowd that leaves has all the others asked: their last orders would pile up.
            return
        order = self._work_for(session.client, session.nonce)
        if order is None:
            return
        if not order.HasField("lease"):
            session.push(order)
        elif session.nonce != order.lease.nonce:
            if session.nonce is not None:
                session.push(_ended(session.nonce, "other work goes first"))
            session.nonce = order.lease.nonce
            session.push(order)
            self._failpoints.reach(Failpoint.LEASE_GIVEN)


def _ended(nonce: bytes, reason: str) -> pb.WorkOrder:
    return pb.WorkOrder(lease_ended=pb.LeaseEnded(nonce=nonce, reason=reason))


def come_back(reason: str, seconds: int) -> pb.WorkOrder:
    """Return the order that ends a stream until later."""
    return pb.WorkOrder(retry_after=pb.RetryAfter(seconds=seconds, reason=reason))
