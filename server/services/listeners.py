"""Open the three doors: enrolment, devices, and the operator's own.

- Enrolment: server TLS; a token allows ``Enrol`` and nothing else.
- Devices: mutual TLS; without a certificate of this federation there is no connection at all.
- Admin: a Unix socket in a folder that only its owner can enter; no network reaches it.

gRPC's limit of 4 MiB a message stays: a larger one would be decompressed before any check.
"""

import os
from pathlib import Path

import grpc

from privacy.identities.party import Identity
from privacy.identities.succession import FormerAuthorities
from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from server.devices.upload_piece import UploadPiece, read_piece

# A broken connection that was closed is seen at once. One that just fell silent (a phone that
# lost its network) is seen after a ping goes unanswered.
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_LONGEST_SOCKET_PATH = 100


class ListenError(Exception):
    """Raised when a listener cannot be opened; the text names the address and the remedy."""


class ServerTls:
    """The certificates that the listeners present, replaceable while these are open."""

    def __init__(self, identity: Identity, former: FormerAuthorities) -> None:
        self._former = former
        self._configuration = _configuration(identity, former)

    def take_identity(self, identity: Identity) -> None:
        """Present a new certificate to new connections; open ones stay."""
        self._configuration = _configuration(identity, self._former)

    def credentials(self, *, mutual: bool) -> grpc.ServerCredentials:
        """Return a listener's credentials; if mutual, callers must show a certificate too."""
        shown = self._configuration

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            if shown is self._configuration:
                return None
            shown = self._configuration
            return shown

        return grpc.dynamic_ssl_server_credentials(
            shown,
            changed,  # type: ignore[arg-type]  # gRPC takes None, its types do not
            require_client_authentication=mutual,
        )


def _configuration(
    identity: Identity, former: FormerAuthorities
) -> grpc.ServerCertificateConfiguration:
    """Return what to show and whom to believe.

    A device that has not followed to this authority still comes with a certificate of a former one.
    The store knows which certificates are devices', so a stolen authority lets nobody in.
    """
    return grpc.ssl_server_certificate_configuration(
        [(identity.tls_key_pem, identity.tls_certificate_pem + former.statements)],
        root_certificates=identity.authority_pem + former.roots,
    )


async def open_enrolment(
    servicer: pb_grpc.EnrolmentServicer, address: str, tls: ServerTls
) -> tuple[grpc.aio.Server, int]:
    """Listen for devices that want to enrol; return the running listener and its port.

    Raises:
        ListenError: If the address is taken or cannot be used.
    """
    grpc_server = grpc.aio.server(options=_OPTIONS)
    pb_grpc.add_EnrolmentServicer_to_server(servicer, grpc_server)
    return grpc_server, await _start(grpc_server, address, tls.credentials(mutual=False))


async def open_devices(
    servicer: pb_grpc.FederationServicer, address: str, tls: ServerTls
) -> tuple[grpc.aio.Server, int]:
    """Listen for enrolled devices; return the running listener and its port.

    Raises:
        ListenError: If the address is taken or cannot be used.
    """
    grpc_server = grpc.aio.server(options=_OPTIONS)
    add_federation(servicer, grpc_server)
    return grpc_server, await _start(grpc_server, address, tls.credentials(mutual=True))


def add_federation(servicer: pb_grpc.FederationServicer, grpc_server: grpc.aio.Server) -> None:
    """Register the methods for devices; sealed bytes go past protobuf, which would copy them."""
    pb_grpc.add_FederationServicer_to_server(servicer, grpc_server)
    # In place of the generated handlers: FetchModel yields messages that are encoded already.
    fetch_model: grpc.RpcMethodHandler[pb.FetchModelRequest, bytes] = (
        grpc.unary_stream_rpc_method_handler(
            servicer.FetchModel, request_deserializer=pb.FetchModelRequest.FromString
        )
    )
    upload: grpc.RpcMethodHandler[UploadPiece, pb.UploadResponse] = (
        grpc.stream_unary_rpc_method_handler(
            servicer.Upload,
            request_deserializer=read_piece,
            response_serializer=pb.UploadResponse.SerializeToString,
        )
    )
    service = pb.DESCRIPTOR.services_by_name["Federation"].full_name
    grpc_server.add_registered_method_handlers(
        service, {"FetchModel": fetch_model, "Upload": upload}
    )


async def open_admin(servicer: pb_grpc.AdminServicer, socket: Path) -> grpc.aio.Server:
    """Listen on the operator's socket; an old socket file is taken over.

    Raises:
        ListenError: If the path is too long for a socket, or cannot be used.
    """
    if len(os.fsencode(socket)) > _LONGEST_SOCKET_PATH:
        raise ListenError(
            f"the socket's path must have at most {_LONGEST_SOCKET_PATH} bytes, "
            f"got {socket}; give the federation a shorter folder"
        )
    socket.unlink(missing_ok=True)
    grpc_server = grpc.aio.server()
    pb_grpc.add_AdminServicer_to_server(servicer, grpc_server)
    # Between bind and chmod others could connect; under this mask the socket is never theirs.
    mask = os.umask(0o177)
    try:
        grpc_server.add_insecure_port(f"unix:{socket}")
        await grpc_server.start()
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {socket}: {error}") from None
    finally:
        os.umask(mask)
    return grpc_server


async def _start(
    grpc_server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials
) -> int:
    try:
        port = grpc_server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ListenError(
            f"cannot listen on {address}: {error}; is another coordinator running?"
        ) from None
    await grpc_server.start()
    return port
