"""Run a server until it is told to stop, and follow its folder meanwhile."""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from export.page.onnxruntime_web import runtime_files
from export.page.page_files import page_files
from export.serve.doors.app import make_app
from export.serve.doors.bounded_listener import bounded_listener
from export.serve.doors.connections import bounded_connection
from export.serve.doors.desk import Desk
from export.serve.doors.metrics_page import METRICS_PATH, make_metrics_app
from export.serve.doors.page import SERVED_FROM
from export.serve.doors.room import Room
from export.serve.folder.file_stamps import FileStamp, stamp_of
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import ListenSettings, ServeSettings, read_settings
from export.serve.folder.tokens import read_tokens
from export.serve.folder.versions import read_versions
from export.serve.loaded.keyboard_version import keyboard_shelf
from export.serve.loaded.metrics import ServingMetrics
from export.serve.loaded.people import People
from export.serve.loaded.personal_models import OwnModels
from export.serve.loaded.shelf import NothingServedError
from export.serve.loaded.voice_version import voice_shelf
from export.serve.loaded.voices import Voices
from privacy.foundation.host_port import checked_host_port
from privacy.foundation.rate_limit import RateLimit

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.5
_AGAIN_AFTER_S = 30.0
_STOP_WITHIN_S = 10


async def serve(folder: ServingFolder, *, announce: Callable[[str], None]) -> None:
    """Serve a folder until SIGTERM or SIGINT; requests under way are answered first.

    Args:
        announce: Called with the server's URL as soon as it answers.

    Raises:
        ServingError: If the folder, its settings or what it serves is not right, or the address is
            taken.
        ValueError: If the present version is corrupt or not signed as it must be.
    """
    folder.check()
    settings = read_settings(folder.settings)
    listen = settings.listen
    desk = make_desk(folder, settings)
    app, figures = make_app(desk, settings.limits), make_metrics_app(desk)
    # Off this machine figures travel as everything does; on it nobody would check a certificate.
    figures_in_clear = listen.is_one_address(listen.metrics_address)
    doors = [
        _Door(_configuration(folder, settings, app), listen, "address"),
        _Door(
            _configuration(folder, settings, figures, in_clear=figures_in_clear),
            listen,
            "metrics_address",
        ),
    ]
    async with (
        _following(folder, desk),
        _stopping(doors, desk),
        _grpc_port(folder, settings, desk) as grpc_port,
    ):
        running = [asyncio.create_task(door.serve()) for door in doors]
        while not all(door.started or one.done() for door, one in zip(doors, running, strict=True)):
            await asyncio.sleep(0.01)
        if all(door.started for door in doors):
            announce(doors[0].url)
            if grpc_port is not None:
                announce(f"grpc://{doors[0].host}:{grpc_port}")
            announce(doors[1].url + METRICS_PATH)
        await asyncio.gather(*running)


@contextlib.asynccontextmanager
async def _grpc_port(
    folder: ServingFolder, settings: ServeSettings, desk: Desk
) -> AsyncIterator[int | None]:
    """Listen for gRPC where the settings say so; yield the port."""
    address = settings.listen.grpc_address
    if address is None:
        yield None
        return
    from export.serve.doors.grpc_face import keyboards_over_grpc  # Loads gRPC, 20 MB.

    async with keyboards_over_grpc(folder, settings, desk, address) as port:
        yield port


def make_desk(folder: ServingFolder, settings: ServeSettings) -> Desk:
    """Load what a folder serves; ValueError if the present version, tokens or page are corrupt."""
    runtime = runtime_files()
    if not runtime:
        _LOG.warning(
            "onnxruntime-web is not installed here, so the page at / says so and runs no keyboard; "
            "run `sotto-serve fetch`, which needs npm, and start again"
        )
    metrics = ServingMetrics()
    shelf = keyboard_shelf(folder, settings)
    shelf.reload()
    voices = voice_shelf(folder, settings)
    voices.reload()
    limits = settings.limits
    desk = Desk(
        folder=folder,
        shelf=shelf,
        people=People(
            OwnModels(folder, metrics, largest_bytes=settings.personal_bytes),
            kept_texts=settings.kept_texts,
        ),
        tokens=read_tokens(folder),
        rate_limit=RateLimit(per_second=limits.requests_per_second, burst=limits.burst),
        room=Room(limits, metrics),
        metrics=metrics,
        threads=ThreadPoolExecutor(_model_threads(), thread_name_prefix="model"),
        voices=Voices(folder, voices, metrics, settings.speech),
        page=page_files(SERVED_FROM, runtime),
    )
    _show(desk)
    return desk


class _Door(uvicorn.Server):
    """A server at one address; it leaves signals to `_stopping`: uvicorn ends by being killed."""

    def __init__(self, config: uvicorn.Config, listen: ListenSettings, name: str) -> None:
        """Listen on the address that a setting names; ServingError if that cannot be."""
        super().__init__(config)
        address = getattr(listen, name)
        host, port = checked_host_port(name, address)
        try:
            self._listener = bounded_listener(
                host.strip("[]"), port, one_address=listen.is_one_address(address)
            )
        except OSError as error:
            raise ServingError(
                f"cannot listen on {address}: {error.strerror}; choose another {name} in serve.toml"
            ) from None
        host, self._port = self._listener.getsockname()[:2]
        self.host = f"[{host}]" if ":" in host else host

    @property
    def url(self) -> str:
        """Return where it is reached."""
        return f"http{'s' if self.config.is_ssl else ''}://{self.host}:{self._port}"

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit`, what is under way included."""
        await super().serve(sockets or [self._listener])


@contextlib.asynccontextmanager
async def _stopping(doors: Sequence[uvicorn.Server], desk: Desk) -> AsyncIterator[None]:
    """Take no more connections after SIGTERM or SIGINT, and end when every request is answered."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        desk.is_closing = True
        for door in doors:
            door.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class _Follower:
    """A follower of what the commands write into the folder while the server runs."""

    def __init__(self, folder: ServingFolder, desk: Desk) -> None:
        self._folder = folder
        self._desk = desk
        # Nothing counts as seen: what changed while the server started is not missed.
        self._seen: dict[Path, FileStamp | None] = {}
        self._again_at = math.inf
        self._said = ""

    async def look(self, *, anyway: bool = False) -> None:
        """Take over what changed since the last look; whatever goes wrong, the next one comes."""
        now = time.monotonic()
        due = now >= self._again_at
        if due:
            self._again_at = math.inf
        try:
            await self._look(anyway=anyway or due)
            self._said = ""
        except Exception as error:
            # What had changed counts as seen already, and must not be missed.
            self._again_at = min(self._again_at, now + _AGAIN_AFTER_S)
            said = f"{type(error).__name__}: {error}"
            if said != self._said:  # Not twice a second.
                _LOG.error("the folder cannot be looked at, what is served goes on: %s", said)
            self._said = said

    async def _look(self, *, anyway: bool) -> None:
        if self._changed(self._folder.tokens) or anyway:
            await self._take(self._read_tokens, "tokens")
        folder = self._folder
        watched = (folder.versions, folder.blocklist, folder.voices.versions)
        changed = [self._changed(path) for path in watched]
        # With those of a version that is about to come: it needs no second reload then.
        names = sorted({*self._desk.shelf.versions, *(self._wanted() if changed[0] else ())})
        changed += [self._changed(folder.everybody(name)) for name in names]
        if any(changed) or anyway:
            keyboard = await self._take(self._reload_keyboard, "versions")
            voices = await self._take(self._desk.voices.shelf.reload, "voices")
            taken = keyboard and voices
            self._desk.metrics.reloads.labels("served" if taken else "refused").inc()
        _show(self._desk)

    def _wanted(self) -> list[str]:
        """Return the versions that the folder says are to be served."""
        try:
            wanted = read_versions(self._folder)
        except ServingError:
            return []  # The reload says what is wrong.
        return [name for name in (wanted.present, wanted.before) if name is not None]

    async def _take(self, work: Callable[[], None], what: str) -> bool:
        try:
            await asyncio.to_thread(work)
        except ValueError as error:
            _LOG.error("%s are not taken over, the old ones go on: %s", what, error)
            return False
        except Exception as error:
            # No fault of what the files say: it may go by, as a lack of memory does.
            self._again_at = time.monotonic() + _AGAIN_AFTER_S
            _LOG.error(
                "%s are not taken over, the old ones go on, and it is tried again in %g s: %s: %s",
                what,
                _AGAIN_AFTER_S,
                type(error).__name__,
                error,
            )
            return False
        _LOG.info("%s taken over", what)
        return True

    def _read_tokens(self) -> None:
        self._desk.tokens = read_tokens(self._folder)
        self._desk.people.forget_clients_but(self._desk.tokens.clients)

    def _reload_keyboard(self) -> None:
        self._desk.shelf.reload()
        self._desk.people.forget_all_but(self._desk.shelf.versions)

    def _changed(self, path: Path) -> bool:
        found = stamp_of(path)
        if path in self._seen and found == self._seen[path]:
            return False
        self._seen[path] = found
        return True


@contextlib.asynccontextmanager
async def _following(folder: ServingFolder, desk: Desk) -> AsyncIterator[None]:
    """Look at the folder twice a second, and at once on SIGHUP."""
    follower = _Follower(folder, desk)
    hurry = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, hurry.set)

    async def follow() -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                # `wait_for` would swallow the end that comes with a SIGHUP, up to Python 3.11.
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await hurry.wait()
            anyway = hurry.is_set()
            hurry.clear()
            await follower.look(anyway=anyway)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
        loop.remove_signal_handler(signal.SIGHUP)
        desk.threads.shutdown(wait=True)
        desk.voices.shut_down()


def _configuration(
    folder: ServingFolder, settings: ServeSettings, app: ASGIApp, *, in_clear: bool = False
) -> uvicorn.Config:
    listen = settings.listen
    certificate, key = (None, None) if in_clear else (listen.certificate, listen.key)
    try:
        config = uvicorn.Config(
            app,
            http=bounded_connection(settings.limits.body_s),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_STOP_WITHIN_S,
            ssl_certfile=None if certificate is None else folder.root / certificate,
            ssl_keyfile=None if key is None else folder.root / key,
        )
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ServingError(f"certificate and key cannot be used: {error}") from None
    return config


def _show(desk: Desk) -> None:
    desk.metrics.clients.set(len(desk.tokens))
    with contextlib.suppress(NothingServedError):
        desk.metrics.round.set(desk.shelf.present.manifest.round_number)


def _model_threads() -> int:
    """Return one thread a core, and two at least: one client has one at a time."""
    return max(2, len(os.sched_getaffinity(0)))
