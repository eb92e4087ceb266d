"""Open the three doors: enrolment, devices, and the operator's own.

- Enrolment: server TLS; whoever holds a token may call ``Enrol`` and nothing else.
- Devices: mutual TLS; without a certificate of this federation there is no connection at all.
- Admin: a Unix socket in a folder that only its owner can enter; no network reaches it.

gRPC's limit of 4 MiB for one message stays as it is: a larger one would be decompressed into
memory before anybody looks at it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import grpc

from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc

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


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """Hold what TLS needs, all PEM.

    Attributes:
        key: The coordinator's private TLS key.
        certificate: Its certificate.
        authority: The federation's CA certificate.
    """

    key: bytes
    certificate: bytes
    authority: bytes


async def open_enrolment(
    servicer: pb_grpc.EnrolmentServicer, address: str, tls: TlsFiles
) -> tuple[grpc.aio.Server, int]:
    """Listen for devices that want to enrol; return the running listener and its port.

    Raises:
        ListenError: If the address is taken or cannot be used.
    """
    grpc_server = grpc.aio.server(options=_OPTIONS)
    pb_grpc.add_EnrolmentServicer_to_server(servicer, grpc_server)
    credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
    return grpc_server, await _start(grpc_server, address, credentials)


async def open_devices(
    servicer: pb_grpc.FederationServicer, address: str, tls: TlsFiles
) -> tuple[grpc.aio.Server, int]:
    """Listen for enrolled devices; return the running listener and its port.

    Raises:
        ListenError: If the address is taken or cannot be used.
    """
    grpc_server = grpc.aio.server(options=_OPTIONS)
    add_federation(servicer, grpc_server)
    credentials = grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.authority, require_client_auth=True
    )
    return grpc_server, await _start(grpc_server, address, credentials)


def add_federation(servicer: pb_grpc.FederationServicer, grpc_server: grpc.aio.Server) -> None:
    """Register the methods for devices; ``FetchModel`` yields messages that are encoded already."""
    pb_grpc.add_FederationServicer_to_server(servicer, grpc_server)
    fetch_model: grpc.RpcMethodHandler[pb.FetchModelRequest, bytes] = (
        grpc.unary_stream_rpc_method_handler(
            servicer.FetchModel, request_deserializer=pb.FetchModelRequest.FromString
        )
    )
    service = pb.DESCRIPTOR.services_by_name["Federation"].full_name
    # In place of the generated handler, which would encode the model for each device anew.
    grpc_server.add_registered_method_handlers(service, {"FetchModel": fetch_model})


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
