"""A server in a process of its own, and a client that speaks to it over a socket."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit
from urllib.request import urlopen

from export.serve.cli import main
from export.serve.folder.folder import ServingFolder
from export.serve.folder.tokens import make_tokens
from tests.forking import ForkedCommand
from tests.waiting import until

START_TIMEOUT_S = 60.0
_COMMAND = "import sys; from export.serve.cli import main; sys.exit(main())"
_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        decoded = json.loads(self.body)
        assert isinstance(decoded, dict)
        return decoded

    @property
    def words(self) -> list[str]:
        suggestions = self.json["suggestions"]
        assert isinstance(suggestions, list)
        return [suggestion["word"] for suggestion in suggestions]


class RunningServer:
    """Hold a running server; stop it with `stop`.

    It is forked (``tests/forking.py``). ``is_forked=False`` starts the command, which has loaded
    nothing but what it needs.
    """

    def __init__(self, folder: ServingFolder, log: Path, *, is_forked: bool = True) -> None:
        self.folder = folder
        self.log = log
        self.process = (
            ForkedCommand(main, [str(folder.root)], log)
            if is_forked
            else subprocess.Popen(
                [sys.executable, "-c", _COMMAND, str(folder.root)],
                stdout=log.open("wb"),
                stderr=subprocess.STDOUT,
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"},
            )
        )
        until(self._is_announced, limit_s=START_TIMEOUT_S)
        urls = self._announced()
        self.address, self.metrics_address = urls[0].netloc, urls[-1].netloc
        self.grpc_address = next((url.netloc for url in urls if url.scheme == "grpc"), None)

    def _announced(self) -> list[SplitResult]:
        told = self.log.read_text() if self.log.exists() else ""
        return [urlsplit(url) for url in re.findall(r"^serving on (\S+)\n", told, re.MULTILINE)]

    def _is_announced(self) -> bool:
        urls = self._announced()
        assert self.process.poll() is None, self.log.read_text()
        return bool(urls) and bool(urls[-1].path)  # The figures' address comes last.

    def stop(self, *, timeout_s: float = 60.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def get(self, path: str, token: str | None = None) -> Answer:
        return self.ask("GET", path, token=token)

    def post(self, path: str, body: object, token: str | None = None) -> Answer:
        return self.ask("POST", path, json.dumps(body).encode(), token=token)

    def next(self, token: str, text: str, **more: object) -> Answer:
        return self.post("/v1/next", {"text": text, **more}, token)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = {"Content-Type": "application/json"} | dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            # A server that refuses a body answers and closes while the rest is still being sent.
            with contextlib.suppress(BrokenPipeError):
                connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def metrics(self) -> str:
        with urlopen(f"http://{self.metrics_address}/metrics", timeout=30) as answer:
            found: bytes = answer.read()
        return found.decode()

    def metric(self, name: str) -> float:
        for line in self.metrics().splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no metric {name}")


def serving_folder(
    root: Path,
    bundle: Path,
    *,
    more: Sequence[str] = (),
    changes: Mapping[str, str] | None = None,
) -> ServingFolder:
    """Make a serving folder for unsigned bundles with one of them; ``changes`` are in its TOML.

    ``more`` is said when it is promoted.
    """
    assert main(["init", str(root), "--accept-unsigned"]) == 0
    folder = ServingFolder(root)
    text = folder.settings.read_text()
    for old, new in ({"8080": "0", "8082": "0"} | dict(changes or {})).items():
        assert old in text
        text = text.replace(old, new)
    folder.settings.write_text(text)
    assert main(["promote", str(root), str(bundle), *more]) == 0
    return folder


def token_of(folder: ServingFolder, client: str) -> str:
    return make_tokens(folder, [client])[client]
