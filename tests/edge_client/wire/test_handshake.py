"""A listener's certificate is seen, and a connection trusts one certificate alone."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from edge_client.wire.handshake import TlsFiles, shown_certificates
from edge_client.wire.refusal import UnreachableError
from edge_client.wire.transport import Transport
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import certificate_pem
from privacy.identities.chains import split_chain
from privacy.identities.issuing_key import make_issuing_key
from privacy.identities.party import Identity
from privacy.identities.succession import read_former, write_former
from server.services.listeners import ServerTls
from tests.privacy.conftest import RUN, enrol


@dataclass(frozen=True)
class Parties:
    """Hold a coordinator's keys before and after a rotation, and a device's."""

    folder: Path
    before: Identity
    after: Identity
    device: Identity


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    folder, now = tmp_path_factory.mktemp("parties"), time.time()
    former = CertificateAuthority.create(folder / "former", RUN.hex(), now=now)
    authority = CertificateAuthority.create(folder / "ca", RUN.hex(), now=now)
    write_former(folder / "ca", folder / "former", former, authority.certificate)
    issuer = make_issuing_key(folder / "ca", authority, now=now)
    return Parties(
        folder,
        enrol(issuer, folder / "before", "coordinator", "coordinator", now=now - 60),
        enrol(issuer, folder / "after", "coordinator", "coordinator", now=now),
        # It has not followed to the new authority yet.
        enrol(former, folder / "device", "device-0001", "device", now=now),
    )


@asynccontextmanager
async def listening(parties: Parties, identity: Identity) -> AsyncIterator[str]:
    grpc_server = grpc.aio.server()
    tls = ServerTls(identity, read_former(parties.folder / "ca"))
    port = grpc_server.add_secure_port("127.0.0.1:0", tls.credentials(mutual=True))
    await grpc_server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await grpc_server.stop(None)


def ask(parties: Parties, shown_by: Identity, trusted: Identity) -> None:
    """Make one call with a listener, trusting a coordinator's certificate."""

    async def call() -> None:
        device = parties.device
        async with listening(parties, shown_by) as address:
            given = trusted.certificates.tls, device.tls_key_pem, device.tls_certificate_pem
            async with Transport(address, *given) as transport:
                await transport.refuse_plan(b"", "code")

    asyncio.run(call())


def test_former_keys_end_the_handshake_of_a_device_that_trusts_the_new_ones(
    parties: Parties,
) -> None:
    # The holder of the trusted certificate's key is met, and has no such method here.
    with pytest.raises(UnreachableError, match="Method not found"):
        ask(parties, shown_by=parties.after, trusted=parties.after)

    # Valid, of the same authority and issuing key; but it is not the one.
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(parties, shown_by=parties.before, trusted=parties.after)


def test_a_listener_shows_its_chain_and_what_leads_to_its_authority(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_client.wire.handshake._TIMEOUT_S", 60.0)
    own = TlsFiles(*Identity.tls_files(parties.folder / "device"), None)

    async def look() -> list[bytes]:
        async with listening(parties, parties.after) as address:
            return await shown_certificates(address, own)

    shown = asyncio.run(look())

    assert shown[:2] == split_chain(parties.after.certificates.tls)
    statements = b"".join(certificate_pem(der) for der in shown[2:])
    assert statements == read_former(parties.folder / "ca").statements
    # The new root, the statement about it, and the root before.
    assert (len(shown), shown[2]) == (5, parties.after.authority)


def test_nobody_at_an_address_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="localhost:1 cannot be reached"):
        asyncio.run(shown_certificates("localhost:1"))
