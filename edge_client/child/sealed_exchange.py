"""Open what a lease's device received, and seal what it sends back.

A device starts from everyone's parameters and, where the personalisation generates some, from its
own part, sealed for it alone and bound to its lease. The update is bound to both. Runs in the
training process, which nothing opened ever leaves.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edge_client.child.masking import masked_payload
from edge_client.folder.held_release import HeldReleaseError
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Job
from edge_client.owner.pinned_helper import read_helper
from models.compression.release_delta import decode_delta, delta_sha256
from models.networks.flat_parameters import parameters_sha256
from models.networks.role_vectors import put_part
from models.personal.hypernetwork import Hypernetwork
from models.plan.plan import Plan, download_schema, hypernetwork_of, released_schema, upload_schema
from models.plan.signed_plan import plan_digest
from models.vector.base_digest import base_digest
from models.vector.codec import CodecError, FlatVector, decode, encode, payload_size
from models.vector.schema import Role, Schema
from privacy.foundation.atomic_files import write_chunks_atomically
from privacy.identities.certificates import (
    CertificateError,
    CertifiedKey,
    KeyUse,
    check_certificate,
)
from privacy.identities.party import Identity
from privacy.sealing.envelope import (
    NO_NONCE,
    Direction,
    MessageContext,
    open_sealed,
    payload_bytes_of,
    seal,
)

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Start:
    """The parameters that a device starts from, and the 32-byte digest that the update is bound to.

    ``parameters`` is flat float32 in the order of ``models.plan.plan.download_schema``, shape
    ``(elements,)``, writable.
    """

    parameters: Tensor
    sha256: bytes


@dataclass(frozen=True)
class HypernetworkStart:
    """The hypernetwork with which a device fits its embedding.

    ``released`` is everyone's parameters, flat float32 in the order of
    ``models.plan.plan.released_schema``; the embedding is bound to the 32-byte ``sha256``.
    """

    released: Tensor
    hypernetwork: Hypernetwork
    sha256: bytes


class SealedExchange:
    """The keys of one job, which open and seal."""

    def __init__(self, job: Job, plan: Plan, identity: Identity, folder: DeviceFolder) -> None:
        self._job = job
        self._plan = plan
        self._identity = identity
        self._folder = folder

    def open_model(self) -> Start:
        """Open everyone's part and, where there is one, the part generated for this device.

        Raises:
            UnsealError: If a part is not this lease's.
            HeldReleaseError: If it leads from a release that the device no longer holds.
            CodecError: If its content does not fit the plan's model.
            CertificateError: If the coordinator's key may not be used now.
        """
        shared_schema = released_schema(self._plan)
        shared = self._shared(shared_schema)
        if self._job.sealed_generated is None:
            return Start(shared, self._job.base_sha256)
        received = download_schema(self._plan)
        generated_schema = received.with_roles(Role.GENERATED)
        generated = self._opened(self._job.sealed_generated, generated_schema, own=True)
        parameters = torch.empty(received.element_count)
        put_part(parameters, received, shared_schema, shared)
        put_part(parameters, received, generated_schema, generated)
        return Start(parameters, base_digest(self._job.base_sha256, parameters_sha256(generated)))

    def open_hypernetwork(self) -> HypernetworkStart:
        """Open everyone's part and the hypernetwork, with which an embedding is fitted.

        Raises:
            UnsealError: If a part is not this lease's.
            CodecError: If its content does not fit the plan's model or hypernetwork.
            CertificateError: If the coordinator's key may not be used now.
            ValueError: If the plan's method has no hypernetwork.
        """
        settings, job = hypernetwork_of(self._plan), self._job
        generated = download_schema(self._plan).with_roles(Role.GENERATED)
        hypernetwork = Hypernetwork(settings, generated)
        released = self._shared(released_schema(self._plan))
        sealed = job.sealed_hypernetwork or ""
        hypernetwork.phi = self._opened(sealed, hypernetwork.schema, own=False)
        sha256 = base_digest(job.base_sha256, parameters_sha256(hypernetwork.phi))
        return HypernetworkStart(released, hypernetwork, sha256)

    def seal_update(
        self, base_sha256: bytes, update: Tensor, payload: memoryview | None = None
    ) -> bytes:
        """Write the sealed update to the job's path and return its message id.

        The update, flat float32 in the order of ``models.plan.plan.upload_schema``, is bound to
        ``base_sha256``. A ``payload`` replaces it where the plan compresses updates. Where the plan
        masks them it is the vector before its mask, which is made here.

        Raises:
            CodecError: If the update does not fit, or is not finite.
            CertificateError: If the key of the coordinator or the helper may not be used now.
            OSError: If the disk is full.
        """
        job, schema = self._job, upload_schema(self._plan)
        context = MessageContext(
            direction=Direction.UPLINK,
            run=bytes.fromhex(self._plan.run),
            round_number=job.round_number,
            slot=job.slot,
            lease_nonce=job.lease_nonce,
            base_sha256=base_sha256,
            schema_sha256=schema.sha256,
            plan_sha256=plan_digest(job.plan),
            deadline_ms=job.deadline_ms,
        )
        if self._plan.sends_masked:
            payload = self._masked(update, context)
        sealed = seal(
            encode(schema, update.numpy()) if payload is None else payload,
            context,
            sender=self._identity,
            recipient=self._coordinator_key(KeyUse.WRAPPING),
        )
        # The agent flushes it together with what it writes about it, before a byte is sent.
        write_chunks_atomically(Path(job.sealed_update), sealed.views(), flush=False)
        return sealed.message_id

    def _masked(self, vector: Tensor, context: MessageContext) -> memoryview:
        certificate = self._job.helper_certificate
        if certificate is None:
            raise CertificateError("a masked update needs the helper's certificate, got none")
        authority = self._folder.enrolment().ca_certificate
        return masked_payload(
            self._plan,
            vector.numpy(),
            context,
            attempt=self._job.attempt,
            device=self._identity,
            helper=read_helper(certificate, authority=authority, now=time.time()),
        )

    def _shared(self, schema: Schema) -> Tensor:
        """Return everyone's part, flat float32, writable."""
        settings = self._plan.compression
        if settings is None or settings.downlink == "whole":
            return self._opened(self._job.sealed_model, schema, own=False)
        return self._moved(schema, settings.downlink_step)

    def _moved(self, schema: Schema, step: float | None) -> Tensor:
        """Return everyone's part where it came as what changed, and hold it for the next time."""
        job, held = self._job, self._folder.held
        if held.sha256 == job.base_sha256:
            # The job is done once more: this very release was taken up the first time.
            return torch.from_numpy(np.frombuffer(held.read(job.base_sha256), "<f4").copy())
        size = payload_bytes_of(Path(job.sealed_model).stat().st_size)
        if size is None:
            raise CodecError("a sealed model must be of a size that one can have")
        base: FlatVector | None = None
        if job.held_sha256 is not None:
            base = np.frombuffer(held.read(job.held_sha256), "<f4")
        payload = self._unsealed(
            job.sealed_model, delta_sha256(schema, job.held_sha256), size, own=False
        )
        flat = torch.from_numpy(decode_delta(schema, base, payload, step))
        if parameters_sha256(flat) != job.base_sha256:
            held.drop()
            raise HeldReleaseError(
                "what changed must lead to the release that the lease names; a whole one is "
                "fetched next"
            )
        held.keep(job.base_sha256, flat.numpy().astype("<f4", copy=False).data)
        return flat

    def _opened(self, path: str, schema: Schema, *, own: bool) -> Tensor:
        """Return a received part, flat float32, writable; ``own`` is bound to this very lease."""
        payload = self._unsealed(path, schema.sha256, payload_size(schema), own=own)
        # Copied once: the payload is read-only, and torch would not promise to leave it alone.
        return torch.from_numpy(decode(schema, payload).copy())

    def _unsealed(
        self, path: str, schema_sha256: bytes, payload_bytes: int, *, own: bool
    ) -> memoryview:
        job = self._job
        return open_sealed(
            _pieces(Path(path)),
            MessageContext(
                direction=Direction.DOWNLINK,
                run=bytes.fromhex(self._plan.run),
                round_number=job.round_number,
                slot=job.slot if own else 0,
                lease_nonce=job.lease_nonce if own else NO_NONCE,
                base_sha256=job.base_sha256,
                schema_sha256=schema_sha256,
                deadline_ms=0,
            ),
            payload_bytes=payload_bytes,
            recipient=self._identity,
            sender=self._coordinator_key(KeyUse.SIGNING),
        )

    def _coordinator_key(self, use: KeyUse) -> CertifiedKey:
        """Return the coordinator's key for ``use`` after checking that it may be used now."""
        keys = self._folder.coordinator()
        der = keys.signing if use is KeyUse.SIGNING else keys.wrapping
        # The device's own certificates may still be of the authority before.
        authority = self._folder.enrolment().ca_certificate
        return check_certificate(der, ca=authority, use=use, role="coordinator", now=time.time())


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
