"""The operator's socket is its owner's alone, and opening it changes nothing for others."""

import asyncio
import os
import stat
import tempfile
from pathlib import Path
from typing import cast
from unittest.mock import AsyncMock

import pytest

from protos import federation_pb2_grpc as pb_grpc
from server.services.listeners import ListenError, device_connections, open_admin


def test_a_folder_made_while_the_socket_opens_can_be_entered(tmp_path: Path) -> None:
    former = os.umask(0o077)

    async def make_folders(made: list[Path]) -> None:
        while True:
            made.append(tmp_path / str(len(made)))
            made[-1].mkdir()
            await asyncio.sleep(0)

    async def open_meanwhile(socket: Path) -> list[Path]:
        made: list[Path] = []
        making = asyncio.create_task(make_folders(made))
        await asyncio.sleep(0)
        listener = await open_admin(cast("pb_grpc.AdminServicer", AsyncMock()), socket)
        making.cancel()
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        await listener.stop(None)
        return made

    try:
        with tempfile.TemporaryDirectory() as short:
            made = asyncio.run(open_meanwhile(Path(short) / "admin"))
    finally:
        os.umask(former)

    assert {stat.S_IMODE(folder.stat().st_mode) for folder in made} == {0o700}


def test_devices_get_the_descriptors_that_the_coordinator_does_not_need() -> None:
    # 256 are kept and 128 are the enrolment's; each device may have the file of an upload open too,
    # but no more than 256 of them at a time.
    assert device_connections(512) == (512 - 256 - 128) // 2
    assert device_connections(1024) == 1024 - 256 - 128 - 256
    assert device_connections(20_000) == 12_288
    assert device_connections(10_000) == 10_000 - 256 - 128 - 256
    with pytest.raises(ListenError, match="at least 512 open files, got 256"):
        device_connections(256)
