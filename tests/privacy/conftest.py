"""A small federation with real 3072-bit keys, made once for all tests of this folder."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import Role
from privacy.identities.party import Identity
from privacy.sealing.envelope import Direction, MessageContext
from tests.privacy.forging import MIB, Forger

RUN = bytes(range(16))
NOW = 1_800_000_000.0


@dataclass(frozen=True)
class Federation:
    """Hold an authority and its parties."""

    authority: CertificateAuthority
    coordinator: Identity
    device: Identity
    other_device: Identity


def enrol(
    authority: CertificateAuthority,
    folder: Path,
    name: str,
    role: Role,
    *,
    now: float = NOW,
    bits: int = 3072,
) -> Identity:
    requests = Identity.create_requests(folder, name, bits=bits)
    hostnames = ("localhost", "127.0.0.1") if role == "coordinator" else ()
    issued = authority.issue_all(requests, name=name, role=role, hostnames=hostnames, now=now)
    return Identity.install(folder, issued, ca=authority.certificate, role=role, now=now)


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    folder = tmp_path_factory.mktemp("federation")
    authority = CertificateAuthority.create(folder / "authority", RUN.hex(), now=NOW)
    return Federation(
        authority=authority,
        coordinator=enrol(authority, folder / "coordinator", "coordinator", "coordinator"),
        device=enrol(authority, folder / "device", "device-0001", "device"),
        other_device=enrol(authority, folder / "other", "device-0002", "device"),
    )


@pytest.fixture(scope="session")
def large(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Identity:
    """A party with 4096-bit keys; it stands for either end, since its keys take seconds to make."""
    folder = tmp_path_factory.mktemp("large")
    return enrol(federation.authority, folder / "large", "large", "coordinator", bits=4096)


@pytest.fixture(scope="session")
def uplink() -> MessageContext:
    """What device-0001 says about its update in round 3."""
    return MessageContext(
        direction=Direction.UPLINK,
        run=RUN,
        round_number=3,
        slot=1,
        lease_nonce=b"nonce of lease 1",
        base_sha256=b"b" * 32,
        schema_sha256=b"s" * 32,
        plan_sha256=b"p" * 32,
        deadline_ms=1_800_000_060_000,
    )


@pytest.fixture(scope="session")
def downlink(uplink: MessageContext) -> MessageContext:
    """What the coordinator says about the model of round 3."""
    return replace(uplink, direction=Direction.DOWNLINK, slot=0, lease_nonce=bytes(16))


@pytest.fixture
def forger(federation: Federation, uplink: MessageContext) -> Forger:
    """A forger that, left alone, makes an honest update of three chunks by device-0001."""
    payload = hashlib.shake_256(b"an update").digest(2 * MIB + 100)
    return Forger(federation.device, federation.coordinator.wrapping.certified, uplink, payload)
