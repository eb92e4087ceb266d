"""The leases of one attempt: who holds which slot, who went away, who will not come."""

from collections.abc import Collection, Iterator

from protos.refusals import RefusalCode
from server.machine.answers import Lease, Receipt, Refused
from server.machine.cohort import Cohort
from server.machine.nonces import NonceDraw


class LeaseBook:
    """The leases of one attempt of one round, which end at ``deadline`` by the machine's clock."""

    def __init__(
        self,
        cohort: Cohort,
        round_number: int,
        attempt: int,
        deadline: float,
        draw_nonce: NonceDraw,
    ) -> None:
        self.cohort = cohort
        self.deadline = deadline
        self.declined: set[str] = set()
        self._round_and_attempt = (round_number, attempt)
        self._draw_nonce = draw_nonce
        self._leases: dict[str, Lease] = {}
        self._holders: dict[int, str] = {}
        self._lost: set[str] = set()
        self._evicted: dict[bytes, str] = {}

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    def get(self, client: str) -> Lease | None:
        """Return the client's lease, whether the client is here or away."""
        return self._leases.get(client)

    def present(self) -> set[str]:
        """Return the clients that hold a lease and are connected."""
        return self._leases.keys() - self._lost

    def find(self, client: str, nonce: bytes) -> Lease | Refused:
        """Return the client's lease of that nonce, or say what became of it."""
        lease = self._leases.get(client)
        if lease is not None and lease.nonce == nonce and client not in self.declined:
            return lease
        if self._evicted.get(nonce) == client:
            return Refused(RefusalCode.LEASE_REASSIGNED)
        return Refused(RefusalCode.UNKNOWN_LEASE)

    def restore(self, receipt: Receipt) -> None:
        """Take over the lease behind a commit that an earlier process made."""
        self._give(receipt.client, receipt.slot, receipt.nonce)

    def claim(self, client: str, busy: Collection[str]) -> Lease | None:
        """Return the client's lease, new if it has none; None when there is no slot for it.

        An untouched slot goes first, then one whose holder left and is not ``busy`` committing.
        """
        self._lost.discard(client)
        if client in self._leases:
            return self._leases[client]
        slot = self.cohort.slot_for(client, self._holders.keys())
        return (
            self._claim_left(client, busy)
            if slot is None
            else self._give(client, slot, self._nonce(client, slot))
        )

    def has_place_for(self, client: str, busy: Collection[str]) -> bool:
        """Return whether ``claim`` would give the client a lease; nothing changes."""
        taken = self._holders.keys() - self._left(busy).keys()
        return client in self._leases or self.cohort.slot_for(client, taken) is not None

    def lose(self, client: str) -> None:
        """Note that the client went away without having committed."""
        if client in self._leases:
            self._lost.add(client)

    def keep(self, client: str) -> None:
        """Note that the slot is the client's for good, here or away."""
        self._lost.discard(client)

    def decline(self, client: str) -> None:
        """Note that the client takes no part; its slot may go to another."""
        self.declined.add(client)
        self.lose(client)

    def _claim_left(self, client: str, busy: Collection[str]) -> Lease | None:
        if not self._lost:
            return None
        left = self._left(busy)
        slot = self.cohort.slot_for(client, self._holders.keys() - left.keys())
        if slot is None:
            return None
        former = self._leases.pop(left[slot])
        self._lost.discard(former.client)
        self._evicted[former.nonce] = former.client
        return self._give(client, slot, self._nonce(client, slot))

    def _left(self, busy: Collection[str]) -> dict[int, str]:
        return {self._leases[name].slot: name for name in self._lost - set(busy)}

    def _nonce(self, client: str, slot: int) -> bytes:
        return self._draw_nonce(*self._round_and_attempt, client, slot)

    def _give(self, client: str, slot: int, nonce: bytes) -> Lease:
        lease = Lease(nonce, client, *self._round_and_attempt, slot, self.deadline)
        self._leases[client] = lease
        self._holders[slot] = client
        return lease
