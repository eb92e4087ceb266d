"""Open the three doors: enrolment, devices, and the operator's own.

- Enrolment: server TLS; a token allows ``Enrol`` and nothing else.
- Devices: mutual TLS; without a certificate of this federation there is no connection at all.
- Admin: a Unix socket in a folder that only its owner can enter; no network reaches it.

Strangers reach the first two, so gRPC itself bounds there what a connection may cost before
anything is read: connections, their handshake, their rest, their streams, the bytes of a message.
All of them together leave descriptors for the store, the uploads and the releases.
"""

import os
from pathlib import Path

import grpc

from privacy.identities.party import Identity
from privacy.identities.succession import FormerAuthorities
from protos import federation_pb2_grpc as pb_grpc
from server.devices.transfer_line import MOST_TRANSFERS
from server.services.enrolment import EnrolmentService, add_enrolment
from server.services.federation_calls import MOST_CALLS, CallsUnderWay, add_federation

# A broken connection that was closed is seen at once. One that just fell silent (a phone that
# lost its network) is seen after a ping goes unanswered, for longer than a silence of 20 s lasts.
_KEEPING_ALIVE: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 25_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_ENROLMENT_CONNECTIONS = 128
# Three signing requests have at most 48 KiB; a device that enrols makes one call and goes.
_ENROLMENT: tuple[tuple[str, int], ...] = (
    *_KEEPING_ALIVE,
    ("grpc.max_allowed_incoming_connections", _ENROLMENT_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 5_000),
    ("grpc.max_connection_age_ms", 20_000),
    ("grpc.max_connection_age_grace_ms", 5_000),
    ("grpc.max_concurrent_streams", 1),
    ("grpc.max_receive_message_length", 64 << 10),
)
# A resting device costs 108 KiB here, so this many cost 1.1 GB beside what is there without them.
_MOST_DEVICE_CONNECTIONS = 10_240
# As long as a device waits for the longest of its calls, a commit.
_CALL_UNTAKEN_S = 120
# gRPC's limit of 4 MiB a message stays: a piece of an update has up to 2.
_DEVICES: tuple[tuple[str, int], ...] = (
    *_KEEPING_ALIVE,
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.max_concurrent_streams", MOST_CALLS),
    # From a thousand calls on that it has not looked at yet, gRPC ends some at random: when a round
    # opens, every device of the cohort fetches its model at one moment.
    ("grpc.server.max_pending_requests", MOST_CALLS * _MOST_DEVICE_CONNECTIONS),
    ("grpc.server.max_pending_requests_hard_limit", MOST_CALLS * _MOST_DEVICE_CONNECTIONS),
    # And it cancels those that the loop has not taken within 30 s, which on a busy machine are most
    # of a crowd's: each would come again, behind all others.
    ("grpc.server_max_unrequested_time_in_server", _CALL_UNTAKEN_S),
    # What a call that waits for its turn may send ahead. Measuring the line would raise it to
    # megabytes a connection, and a call that reads asks for a whole piece anyway.
    ("grpc.http2.lookahead_bytes", 4 << 10),
    ("grpc.http2.bdp_probe", 0),
    # Memory to read into, which a connection keeps for its life once it has sent an update: gRPC
    # would make it 87 KiB.
    ("grpc.experimental.tcp_max_read_buffer_size", 8 << 10),
    # A TLS record on its way out, for which each connection keeps memory; gRPC's are of 16 KiB.
    ("grpc.tsi.max_frame_size", 4 << 10),
)
_DESCRIPTORS_KEPT = 256
_LEAST_DESCRIPTORS = 512
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
    servicer: EnrolmentService, address: str, tls: ServerTls
) -> tuple[grpc.aio.Server, int]:
    """Listen for devices that want to enrol; return the running listener and its port.

    Raises:
        ListenError: If the address is taken or cannot be used.
    """
    grpc_server = grpc.aio.server(options=_ENROLMENT)
    add_enrolment(servicer, grpc_server)
    return grpc_server, await _start(grpc_server, address, tls.credentials(mutual=False))


async def open_devices(
    servicer: pb_grpc.FederationServicer,
    address: str,
    tls: ServerTls,
    *,
    calls: CallsUnderWay,
    connections: int,
) -> tuple[grpc.aio.Server, int]:
    """Listen for enrolled devices; return the running listener and its port.

    ``connections`` are those that it accepts at one time, as ``device_connections`` says.

    Raises:
        ListenError: If the address is taken or cannot be used.
    """
    most = ("grpc.max_allowed_incoming_connections", connections)
    grpc_server = grpc.aio.server(options=(*_DEVICES, most))
    add_federation(servicer, calls, grpc_server)
    return grpc_server, await _start(grpc_server, address, tls.credentials(mutual=True))


def device_connections(descriptors: int) -> int:
    """Return how many devices may be connected in a process of so many descriptors.

    So many uploads as may move at a time have a file open too, at most one a device; some
    descriptors are kept for the coordinator itself.

    Raises:
        ListenError: If the process may open too few files to serve anybody.
    """
    if descriptors < _LEAST_DESCRIPTORS:
        raise ListenError(
            f"a coordinator needs at least {_LEAST_DESCRIPTORS} open files, got {descriptors}; "
            "raise LimitNOFILE= or `ulimit -Hn`"
        )
    left = descriptors - _DESCRIPTORS_KEPT - _ENROLMENT_CONNECTIONS
    return min(left - min(left // 2, MOST_TRANSFERS), _MOST_DEVICE_CONNECTIONS)


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
    # Between bind and chmod others could connect; under this mask the socket is never theirs. The
    # mask is the whole process's, whose other tasks make folders: nothing is awaited meanwhile.
    mask = os.umask(0o177)
    try:
        grpc_server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {socket}: {error}") from None
    finally:
        os.umask(mask)
    await grpc_server.start()
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
