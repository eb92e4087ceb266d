"""Certify a coordinator and a device, and make what passes between them, for benchmarks."""

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from models.vector.codec import FlatVector
from models.vector.schema import Schema, TensorSpec
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import Role
from privacy.identities.party import Identity
from privacy.sealing.envelope import Direction, MessageContext

RUN = bytes(16)
NONCE = b"nonce of a lease"
_CODEC_HEADER_BYTES = 48


@dataclass(frozen=True)
class Parties:
    """Hold both ends of a federation.

    Attributes:
        coordinator: The one end.
        device: The other.
    """

    coordinator: Identity
    device: Identity

    @classmethod
    def certify(cls, folder: Path) -> Self:
        """Make an authority and both ends below a folder."""
        authority = CertificateAuthority.create(folder / "authority", RUN.hex())
        _certify(authority, folder / "coordinator", "coordinator")
        _certify(authority, folder / "device", "device")
        return cls.load(folder)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what ``certify`` made."""
        return cls(Identity.load(folder / "coordinator"), Identity.load(folder / "device"))


def _certify(authority: CertificateAuthority, folder: Path, role: Role) -> None:
    requests = Identity.create_requests(folder, role)
    names = ("localhost",) if role == "coordinator" else ()
    certificates = authority.issue_all(requests, name=role, role=role, hostnames=names)
    Identity.install(folder, certificates, ca=authority.certificate, role=role, now=time.time())


def schema_of_size(payload_bytes: int) -> Schema:
    """Return a schema whose payload has this many bytes, a multiple of 4."""
    elements = (payload_bytes - _CODEC_HEADER_BYTES) // 4
    return Schema((TensorSpec(name="weight", shape=(elements,), layer="weight"),))


def drawn_vector(schema: Schema) -> FlatVector:
    """Draw parameters, shape ``(elements,)``; the same in every process."""
    return np.random.default_rng(0).random(schema.element_count, dtype=np.float32)


def context_of(schema: Schema, direction: Direction) -> MessageContext:
    """Return what the only message in a direction belongs to."""
    up = direction is Direction.UPLINK
    return MessageContext(
        direction=direction,
        run=RUN,
        round_number=1,
        slot=0,
        lease_nonce=NONCE if up else bytes(16),
        base_sha256=hashlib.sha256(b"base").digest(),
        schema_sha256=schema.sha256,
        deadline_ms=0,
    )
