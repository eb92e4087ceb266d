"""Open what devices send: before it is acknowledged, and again when it is summed.

Between the two they stay sealed: no plaintext update is ever on the coordinator's disk, and memory
holds only a few (`server.uplink.update_buffers`). One that is still there from its arrival
(`server.uplink.early_opening`) or its commit is not opened again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from models.vector.codec import CodecError, Payload
from privacy.identities.certificates import CertifiedKey
from privacy.identities.party import Identity
from privacy.sealing.envelope import MessageContext, Opener, UnsealError, payload_bytes_of
from protos.refusals import RefusalCode
from server.aggregation.closing_workers import (
    ClosingWorkers,
    buffers_wanted,
    closing_worker_count,
)
from server.devices.refused_calls import RefusedError
from server.uplink.early_opening import EarlyOpening
from server.uplink.opened_ahead import OpenedAhead
from server.uplink.update_buffers import UpdateBuffers

# On arrival: decrypting and hashing two keep two processors busy.
_OPEN_AT_ONCE = 2

Content = TypeVar("Content")
Looked = TypeVar("Looked")


@dataclass(frozen=True, kw_only=True)
class SealedUpdate:
    """A sealed file on disk, with the context and the message identifier, 16 bytes, it must have.

    Any of the senders' keys may have signed it: after a renewal the one before is still good.
    ``attempt``, from 0, is that of its lease.
    """

    path: Path
    context: MessageContext
    message_id: bytes
    senders: Sequence[CertifiedKey]
    attempt: int = 0


class PayloadSizes(Protocol):
    """The sizes of payloads.

    Attributes:
        payload_bytes: Size of the largest payload.
        least_bytes: Size of the smallest: the same if none varies.
    """

    @property
    def payload_bytes(self) -> int:
        """Return the largest payload's size."""

    @property
    def least_bytes(self) -> int:
        """Return the smallest payload's size."""


class PayloadForm(PayloadSizes, Protocol):
    """The form of one round's payloads."""

    def check_layout(self, payload: Payload) -> None:
        """Check all that needs no value; raises ``CodecError``."""


class PayloadForms(PayloadSizes, Protocol):
    """The forms of a plan's payloads, round by round; sizes are those of any round."""

    def of_round(self, round_number: int) -> PayloadForm:
        """Return the form of a round, counted from 1."""


class PayloadOpener(ABC, Generic[Content]):
    """An opener of the payloads of one plan, ``open_at_once`` at one time while they arrive.

    What a payload holds, and what is looked at before it is acknowledged, is a kind's own.
    """

    def __init__(
        self,
        forms: PayloadForms,
        identity: Identity,
        *,
        buffer_count: int,
        worker_count: int | None = None,
    ) -> None:
        """Prepare memory for the payloads that are open at one time.

        Args:
            forms: The form in which they arrive.
            identity: The coordinator, to whom they are sealed.
            buffer_count: Payloads held at one time; see ``update_buffers.buffer_count_for``.
            worker_count: Workers of a close; None is as many as the machine's cores allow.
        """
        self._identity = identity
        self._worker_count = worker_count or closing_worker_count()
        self.open_at_once = min(_OPEN_AT_ONCE, buffer_count)
        self._take_forms(forms, buffer_count)

    def _take_forms(self, forms: PayloadForms, buffer_count: int) -> None:
        """Open payloads of another plan, between rounds, in at least ``open_at_once`` buffers."""
        self._forms = forms
        self._payload_bytes = forms.payload_bytes
        self._buffers = UpdateBuffers(
            buffer_count, self._payload_bytes, closing=buffers_wanted(self._worker_count)
        )

    @abstractmethod
    def check(self, sealed: SealedUpdate) -> bytes:
        """Open an update, check it and return the SHA-256 of its signing certificate.

        Raises:
            RefusedError: If it does not open, does not fit the plan or cannot be aggregated.
            OSError: If the file has to be read and cannot be.
        """

    @abstractmethod
    def _content(self, payload: memoryview, round_number: int) -> Content:
        """Return what a payload holds, where it lies if that may be; raises ``CodecError``."""

    def take_identity(self, identity: Identity) -> None:
        """Open with renewed keys from now on; the wrapping key before them opens too."""
        self._identity = identity

    def forget(self) -> None:
        """Let go of every update that is still at hand: its round is summed."""
        self._buffers.forget()

    def arriving(self, sealed: SealedUpdate) -> EarlyOpening | None:
        """Return what opens an update from its first piece on; None where memory is short.

        Only the first of the senders is tried. A buffer stays with it until it is closed. None too
        where sizes vary: such an update is small, and is opened when all of it is there.
        """
        if not sealed.senders or self._forms.least_bytes != self._payload_bytes:
            return None
        # A piece may still be on its way when the next round's plan is taken up.
        arrives_as = self._forms.of_round(sealed.context.round_number)
        buffers = self._buffers
        buffer = buffers.take_spare(_attempt_of(sealed))
        if buffer is None:
            return None
        sender = sealed.senders[0]
        opener = self._opener_of(sealed, sender, buffer.memory)
        buffer.payload_bytes = self._payload_bytes

        def finish(whole: Opener | None) -> None:
            try:
                if whole is not None:
                    arrives_as.check_layout(whole.finish())
                    buffer.keep(_message_of(sealed), _attempt_of(sealed), sender.sha256)
            finally:
                opener.close()
                buffers.give_back(buffer)

        return EarlyOpening(opener, finish)

    @contextmanager
    def opened(self, sealed: SealedUpdate) -> Iterator[tuple[Content, bytes]]:
        """Lend what an update holds, and the digest of its signer's certificate.

        It is unmeasured, and must not be changed: it may be lent again from where it lies.

        Raises:
            RefusedError: If it does not open, or does not fit the plan.
            OSError: If the file has to be read and cannot be.
        """
        message = _message_of(sealed)
        buffers = self._buffers
        buffer = buffers.take(message)
        try:
            if buffer.holds != message:
                buffer.holds = None
                buffer.payload_bytes = self._size_of(sealed)
                signing_sha256 = self._fill(buffer.memory[: buffer.payload_bytes], sealed)
                buffer.keep(message, _attempt_of(sealed), signing_sha256)
            used = buffer.memory[: buffer.payload_bytes]
            try:
                content = self._content(used, sealed.context.round_number)
            except CodecError as error:
                raise RefusedError(RefusalCode.MALFORMED_UPDATE, str(error)) from None
            yield content, buffer.signing_sha256
        finally:
            buffers.give_back(buffer)

    def workers(self) -> ClosingWorkers:
        """Return what opens and sums the updates of one close, within this opener's memory."""
        return ClosingWorkers(self._worker_count, buffers=self._buffers.for_closing)

    def ahead(
        self,
        updates: Iterable[SealedUpdate],
        look: Callable[[Content], Looked],
        workers: ClosingWorkers,
    ) -> OpenedAhead[SealedUpdate, Content, Looked]:
        """Open updates in their order, the next ones while the caller works on this one."""
        return OpenedAhead(updates, self.opened, look, workers)

    def _size_of(self, sealed: SealedUpdate) -> int:
        """Return the size of an update's payload, from that of its file where sizes vary."""
        arrives_as = self._forms.of_round(sealed.context.round_number)
        if arrives_as.least_bytes == arrives_as.payload_bytes:
            return arrives_as.payload_bytes
        size = payload_bytes_of(sealed.path.stat().st_size)
        if size is None or not arrives_as.least_bytes <= size <= arrives_as.payload_bytes:
            raise RefusedError(
                RefusalCode.WRONG_SIZE, f"no update has {sealed.path.stat().st_size} sealed bytes"
            )
        return size

    def _fill(self, memory: memoryview, sealed: SealedUpdate) -> bytes:
        payload, signing_sha256 = self._unseal(sealed, memory)
        try:
            self._forms.of_round(sealed.context.round_number).check_layout(payload)
        except CodecError as error:
            raise RefusedError(RefusalCode.MALFORMED_UPDATE, str(error)) from None
        return signing_sha256

    def _unseal(self, sealed: SealedUpdate, memory: memoryview) -> tuple[memoryview, bytes]:
        for sender in sealed.senders:
            try:
                return self._open(sealed, sender, memory), sender.sha256
            except UnsealError:
                continue
        raise RefusedError(
            RefusalCode.UNSEAL_FAILED, "the sealed update could not be opened; train again"
        )

    def _opener_of(self, sealed: SealedUpdate, sender: CertifiedKey, memory: memoryview) -> Opener:
        return Opener(
            sealed.context,
            payload_bytes=len(memory),
            recipient=self._identity,
            sender=sender,
            message_id=sealed.message_id,
            into=memory,
        )

    def _open(self, sealed: SealedUpdate, sender: CertifiedKey, memory: memoryview) -> memoryview:
        opener = self._opener_of(sealed, sender, memory)
        try:
            with sealed.path.open("rb", buffering=0) as file:
                opener.feed_file(file)
            return opener.finish()
        finally:
            opener.close()


def _message_of(sealed: SealedUpdate) -> tuple[MessageContext, bytes]:
    return sealed.context, sealed.message_id


def _attempt_of(sealed: SealedUpdate) -> tuple[int, int | None]:
    """Return what tells the updates of one attempt from those before: no two share a deadline."""
    return sealed.context.round_number, sealed.context.deadline_ms
