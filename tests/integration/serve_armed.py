"""Serve a federation in a process that dies at one named moment, as by a power cut."""

import asyncio
import sys
from pathlib import Path

from server.config import read_config
from server.failpoints import Failpoints
from server.folder import ServerFolder
from server.serving import Ports, serve


def announce(ports: Ports) -> None:
    print(f"enrolment on port {ports.enrolment}, devices on port {ports.devices}", flush=True)  # noqa: T201


folder = ServerFolder(Path(sys.argv[1]))
asyncio.run(
    serve(folder, read_config(folder.config), failpoints=Failpoints(sys.argv[2]), on_ready=announce)
)
