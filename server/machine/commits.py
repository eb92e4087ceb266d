"""The commits of one attempt, each client's once, each answer the same when it is repeated."""

from protos.refusals import RefusalCode
from server.machine.answers import CommitBegun, Committed, Lease, Receipt, Refused


class CommitBook:
    """The commits that run and those that are done, as receipts by nonce."""

    def __init__(self) -> None:
        self.receipts: dict[bytes, Receipt] = {}
        # Client and message of each commit that is being made durable.
        self._running: dict[bytes, tuple[str, bytes]] = {}

    @property
    def running(self) -> set[str]:
        """Return the clients whose commit is being made durable."""
        return {client for client, _ in self._running.values()}

    @property
    def clients(self) -> set[str]:
        """Return the clients whose commit is done."""
        return {receipt.client for receipt in self.receipts.values()}

    def in_slot_order(self) -> tuple[Receipt, ...]:
        """Return what is committed, lowest slot first."""
        return tuple(sorted(self.receipts.values(), key=lambda receipt: receipt.slot))

    def holds(self, lease: Lease | None) -> bool:
        """Return whether the lease is committed or its commit is running."""
        return lease is not None and (lease.nonce in self.receipts or lease.nonce in self._running)

    def repeat(self, client: str, nonce: bytes, message_id: bytes) -> Committed | Refused | None:
        """Return the answer that an earlier commit under this nonce got, or None."""
        receipt = self.receipts.get(nonce)
        if receipt is None or receipt.client != client:
            return None
        same = receipt.message_id == message_id
        return Committed(receipt, repeated=True) if same else Refused(RefusalCode.DUPLICATE)

    def begin(self, begun: CommitBegun, message_id: bytes, places: int) -> CommitBegun | Refused:
        """Reserve one of the places for this commit, unless it has one or all are taken."""
        nonce = begun.lease.nonce
        if nonce in self._running:
            same = self._running[nonce][1] == message_id
            return Refused(RefusalCode.COMMIT_RUNNING if same else RefusalCode.DUPLICATE)
        if len(self.receipts) + len(self._running) >= places:
            return Refused(RefusalCode.ROUND_FULL)
        self._running[nonce] = (begun.lease.client, message_id)
        return begun

    def finish(self, lease: Lease) -> Committed | None:
        """Turn a running commit into a receipt; None if none was running."""
        running = self._running.pop(lease.nonce, None)
        if running is None:
            return None
        receipt = Receipt(
            nonce=lease.nonce,
            client=lease.client,
            round_number=lease.round_number,
            attempt=lease.attempt,
            slot=lease.slot,
            message_id=running[1],
        )
        self.receipts[lease.nonce] = receipt
        return Committed(receipt, repeated=False)

    def fail(self, lease: Lease) -> bool:
        """Forget a running commit; return whether there was one."""
        return self._running.pop(lease.nonce, None) is not None
