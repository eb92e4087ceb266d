"""See which certificates a coordinator shows, before anything is said to it.

gRPC tells nobody whom it met. So what a listener shows is looked at in a handshake of its own,
which proves nothing, and checked; the connection that is worked on then trusts that one
certificate, and whoever answers there must have its key. One look serves until the coordinator
shows another.
"""

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from edge_client.wire.refusal import UnreachableError
from privacy.foundation.host_port import host_of

_TIMEOUT_S = 10.0


class TlsFiles(NamedTuple):
    """A device's own TLS certificate and key, PEM, which the listener for devices asks for."""

    certificate: Path
    key: Path
    passphrase: bytes | None


class _Shown(Protocol):
    def public_bytes(self, encoding: int) -> bytes: ...


class _Handshake(Protocol):
    def get_unverified_chain(self) -> list[_Shown]: ...


async def shown_certificates(address: str, own: TlsFiles | None = None) -> list[bytes]:
    """Return the certificates, DER, that the listener at ``host:port`` shows, its own first.

    Raises:
        UnreachableError: If nobody answers, or not by TLS 1.3.
        OSError: If the device's own files cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The caller checks what was shown, and the next connection who has its key.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    if own is not None:
        # Empty rather than None: nobody is at a terminal to be asked for it.
        context.load_cert_chain(own.certificate, own.key, password=own.passphrase or b"")
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection(
                host_of(address), int(address.rpartition(":")[2]), ssl=context
            )
    except (OSError, TimeoutError) as error:
        raise UnreachableError(f"{address} cannot be reached: {error or 'no answer'}") from None
    try:
        # Python 3.13 has this call on the object itself; before, only what lies below it has.
        handshake = cast(_Handshake, writer.get_extra_info("ssl_object")._sslobj)
        # 2 is DER.
        return [shown.public_bytes(2) for shown in handshake.get_unverified_chain()]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
