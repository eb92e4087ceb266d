"""Put a helper together from its folder and let it answer until it is told to stop."""

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from privacy.identities.certificates import CertificateError
from privacy.identities.helper_admission import run_of
from privacy.identities.party import Identity
from protos import helper_pb2_grpc as pb_grpc
from server.helper.folder import HelperFolder
from server.helper.newest_issuer import NewestIssuer
from server.helper.service import HelperService
from server.records.failpoints import UNARMED, Failpoints
from server.records.threads import Threads

_THREADS = 2
# A call under way gets this long to end by itself; whatever it was told is on the disk.
_GRACE_S = 5.0
# One coordinator calls, and strangers may try: gRPC bounds what a connection costs.
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_allowed_incoming_connections", 64),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.max_receive_message_length", 64 << 10),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 25_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


class HelperListenError(Exception):
    """Raised when the address cannot be listened on; the text names it."""


async def run_helper(
    folder: HelperFolder,
    *,
    failpoints: Failpoints = UNARMED,
    on_ready: Callable[[int], None],
) -> None:
    """Answer until SIGTERM or SIGINT; ``on_ready`` gets the port.

    Raises:
        HelperFolderError: If another process answers from this folder.
        HelperListenError: If the address cannot be used.
        HelperSettingsError: If the settings cannot be used.
        KeyFileError: If a key is missing or readable by others.
        CertificateError: If the certificates have ended, or are another authority's.
        AnswerStoreError: If the store cannot be opened.
        NewestIssuerError: If what is known of the callers' issuing keys cannot be read.
    """
    settings = folder.read_settings()
    authority = folder.read_authority()
    with folder.only_one(), ThreadPoolExecutor(_THREADS) as executor:
        helper = Identity.load(folder.identity)
        helper.check_time(time.time())
        if helper.authority != authority:
            raise CertificateError(
                f"{folder.authority} is another authority than the one that admitted this helper; "
                "have the newest request certified by it, and run `sotto-helper admit`"
            )
        service = HelperService(
            folder.open_answers(settings),
            helper,
            run_of(authority),
            settings,
            issuers=NewestIssuer(folder.newest_issuer, authority),
            threads=Threads(executor),
            failpoints=failpoints,
        )
        grpc_server, port = await listen(service, helper, settings.listen)
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        try:
            on_ready(port)
            await stopped.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            await grpc_server.stop(_GRACE_S)


async def listen(
    service: pb_grpc.HelperServicer, helper: Identity, address: str
) -> tuple[grpc.aio.Server, int]:
    """Listen for the coordinator over mutual TLS; return the running listener and its port.

    Raises:
        HelperListenError: If the address is taken or cannot be used.
    """
    grpc_server = grpc.aio.server(options=_OPTIONS)
    pb_grpc.add_HelperServicer_to_server(service, grpc_server)
    credentials = grpc.ssl_server_credentials(
        [(helper.tls_key_pem, helper.tls_certificate_pem)],
        root_certificates=helper.authority_pem,
        require_client_auth=True,
    )
    try:
        port = grpc_server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise HelperListenError(
            f"cannot listen on {address}: {error}; is another helper running?"
        ) from None
    await grpc_server.start()
    return grpc_server, port
