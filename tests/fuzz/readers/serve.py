"""Readers of a server of keyboards: its folder, and what strangers send it."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from starlette.types import Message

from export.serve.doors.app import make_app
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import read_settings
from export.serve.folder.tokens import make_tokens, read_tokens
from export.serve.folder.versions import read_versions
from export.serve.promotion.recall import read_held_out
from export.serve.running import make_desk
from tests.export.serve.running_server import serving_folder
from tests.fuzz.readers.export import scene
from tests.fuzz.target import Prepared, Target, of_file

_OFTEN = {
    "requests_per_second = 30.0": "requests_per_second = 1e9",
    "burst = 60": "burst = 1000000000",
}
_BODIES = {
    "/v1/next": {"text": "see you", "count": 3, "incognito": True},
    "/v2/models/keyboard/infer": {
        "inputs": [{"name": "tokens", "shape": [1, 3], "datatype": "INT64", "data": [2, 3, 4]}]
    },
    "/v1/audio/speech": {"model": "voice", "input": "good morning", "voice": "ada"},
}
_SERVER_FAILED = 500


class UnforeseenError(Exception):
    """Raised when a server answered that it failed."""


def targets() -> Iterator[Target]:
    """Yield this package's targets."""
    refused = (ServingError,)
    for name, read, hostile in (
        ("serve.toml", lambda folder: read_settings(folder.settings), "toml"),
        ("versions.json", read_versions, "json"),
        ("tokens.json", read_tokens, "json"),
    ):
        yield Target(f"serve/{name}", refused, _in_folder(name, read), (hostile,))
    held_out = of_file(read_held_out, b"good morning to you and to everybody\n" * 40)
    yield Target("serve/held-out", refused, held_out, ("text",))
    for path, body in _BODIES.items():
        yield Target(f"serve{path}", (), _asked(path, body), ("json",))


def _served(folder: Path) -> ServingFolder:
    return serving_folder(folder / "serving", scene().folder / "bundle.zip", changes=_OFTEN)


def _in_folder(name: str, read: Callable[[ServingFolder], object]) -> Callable[[Path], Prepared]:
    def prepare(folder: Path) -> Prepared:
        served = _served(folder)
        make_tokens(served, ["ann"])
        path = served.root / name

        def read_changed(content: bytes) -> object:
            path.write_bytes(content)
            return read(served)

        return Prepared(read_changed, [path.read_bytes()])

    return prepare


def _asked(path: str, body: object) -> Callable[[Path], Prepared]:
    def prepare(folder: Path) -> Prepared:
        served = _served(folder)
        (token,) = make_tokens(served, ["ann"]).values()
        settings = read_settings(served.settings)
        app = make_app(make_desk(served, settings), settings.limits)
        loop = asyncio.new_event_loop()
        headers = [
            (b"content-type", b"application/json"),
            (b"authorization", f"Bearer {token}".encode()),
        ]

        def read(content: bytes) -> None:
            length = (b"content-length", str(len(content)).encode())
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "POST",
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "root_path": "",
                "scheme": "http",
                "headers": [*headers, length],
                "server": ("127.0.0.1", 80),
                "client": ("127.0.0.1", 5000),
            }
            statuses: list[int] = []

            async def receive() -> Message:
                return {"type": "http.request", "body": content, "more_body": False}

            async def send(message: Message) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])

            loop.run_until_complete(app(scope, receive, send))
            if not statuses or statuses[0] >= _SERVER_FAILED:
                raise UnforeseenError(f"{path} answered with {statuses}")

        return Prepared(read, [json.dumps(body).encode()])

    return prepare
