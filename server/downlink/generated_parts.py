"""Seal the tensors that the personalisation method generates, for one device alone.

A part is bound to its device's lease and slot, so no other device's or round's part fits. It lies
sealed in a file until its attempt ends, so memory does not grow with the cohort.
"""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

from models.networks.flat_parameters import parameters_sha256
from models.vector.base_digest import base_digest
from models.vector.codec import encode, payload_size
from privacy.foundation.atomic_files import write_chunks_atomically
from privacy.identities.certificates import CertifiedKey
from privacy.identities.party import Identity
from privacy.sealing.envelope import Direction, MessageContext, seal, sealed_bytes
from protos.data_chunks import PIECE_BYTES
from server.downlink.sealed_once import encode_chunk
from server.machine.answers import Lease
from server.records.threads import Threads
from server.releases.method_state import MethodState


class GeneratedParts:
    """The parts of one attempt, each of ``total_bytes`` when sealed."""

    def __init__(
        self,
        state: MethodState,
        folder: Path,
        *,
        run: bytes,
        round_number: int,
        base_sha256: bytes,
        sender: Identity,
        threads: Threads,
    ) -> None:
        """Prepare for an attempt; parts that an earlier one left in ``folder`` are deleted."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        self.total_bytes = sealed_bytes(payload_size(state.generated))
        self._state = state
        self._folder = folder
        self._run = run
        self._round_number = round_number
        self._base_sha256 = base_sha256
        self._sender = sender
        self._threads = threads
        self._sealing: dict[tuple[bytes, bytes], asyncio.Task[Path]] = {}
        self._digests: dict[str, bytes] = {}

    async def pieces(self, lease: Lease, recipient: CertifiedKey, offset: int) -> Iterator[bytes]:
        """Return one device's part from a byte offset on, as encoded ``ModelChunk`` messages.

        Raises:
            OSError: If the disk is full.
        """
        key = (lease.nonce, recipient.sha256)
        if key not in self._sealing:
            sealing = self._threads.run(lambda: self._seal(lease, recipient))
            self._sealing[key] = asyncio.create_task(sealing)
        try:
            path = await asyncio.shield(self._sealing[key])
        except Exception:
            # Tried anew when it is asked for again: a disk may have room then.
            self._sealing.pop(key, None)
            raise
        return _chunks(path, offset)

    def base_of(self, client: str) -> bytes:
        """Return the digest of what a device starts from, 32 bytes; may have to make it first."""
        digest = self._digests.get(client)
        if digest is None:
            digest = self._digests[client] = parameters_sha256(self._state.parameters_for(client))
        return base_digest(self._base_sha256, digest)

    def _seal(self, lease: Lease, recipient: CertifiedKey) -> Path:
        generated = self._state.parameters_for(lease.client)
        self._digests[lease.client] = parameters_sha256(generated)
        schema = self._state.generated
        message = seal(
            encode(schema, generated.numpy()),
            MessageContext(
                direction=Direction.DOWNLINK,
                run=self._run,
                round_number=self._round_number,
                slot=lease.slot,
                lease_nonce=lease.nonce,
                base_sha256=self._base_sha256,
                schema_sha256=schema.sha256,
                deadline_ms=0,
            ),
            sender=self._sender,
            recipient=recipient,
        )
        path = self._folder / f"{lease.nonce.hex()}-{recipient.sha256.hex()[:16]}.sealed"
        # Not flushed: after a power cut it is sealed anew.
        write_chunks_atomically(path, message.views(), flush=False)
        return path


def _chunks(path: Path, offset: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        while piece := file.read(PIECE_BYTES):
            yield encode_chunk(piece)
