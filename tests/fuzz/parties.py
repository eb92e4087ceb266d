"""A federation's parties with real keys, made once in a process."""

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from tests.privacy.conftest import NOW, enrol

RUN = "00112233445566778899aabbccddeeff"


@dataclass(frozen=True)
class Parties:
    """An authority, and a coordinator and a device that it certified; and where their keys lie."""

    authority: CertificateAuthority
    coordinator: Identity
    device: Identity
    folder: Path


@functools.cache
def parties() -> Parties:
    """Return the one federation of this process."""
    folder = Path(tempfile.mkdtemp())
    authority = CertificateAuthority.create(folder / "authority", RUN, now=NOW)
    return Parties(
        authority,
        enrol(authority, folder / "coordinator", "coordinator", "coordinator"),
        enrol(authority, folder / "device", "device-0001", "device"),
        folder,
    )
