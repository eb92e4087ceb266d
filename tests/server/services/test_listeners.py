"""The doors: the operator's socket is its owner's alone, and a crowd is let in to the last."""

import asyncio
import os
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import cast
from unittest.mock import AsyncMock

import grpc
import pytest

from protos import federation_pb2_grpc as pb_grpc
from server.services import listeners
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
    assert device_connections(20_000) == 10_240
    assert device_connections(10_000) == 10_000 - 256 - 128 - 256
    with pytest.raises(ListenError, match="at least 512 open files, got 256"):
        device_connections(256)


def test_a_burst_of_calls_that_no_loop_has_looked_at_yet_is_answered_to_the_last() -> None:
    # gRPC's own bound is 1,000: from there on it ends some of them at random.
    count, ready, may_look, answered = 1_600, *(threading.Event() for _ in range(3))
    ports: list[int] = []

    async def answer(request: bytes, context: object) -> bytes:
        return request

    async def serve() -> None:
        grpc_server = grpc.aio.server(options=listeners._DEVICES)
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Call": grpc.unary_unary_rpc_method_handler(answer)
        }
        grpc_server.add_registered_method_handlers("test", handlers)
        ports.append(grpc_server.add_insecure_port("127.0.0.1:0"))
        await grpc_server.start()
        await asyncio.sleep(0.1)
        ready.set()
        may_look.wait(60)  # the loop does nothing meanwhile
        await asyncio.to_thread(answered.wait, 60)
        await grpc_server.stop(None)

    serving = threading.Thread(target=asyncio.run, args=(serve(),))
    serving.start()
    assert ready.wait(60)
    # A connection has eight calls at most.
    options = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.insecure_channel(f"127.0.0.1:{ports[0]}", options) for _ in range(count // 8)]
    stubs: list[grpc.UnaryUnaryMultiCallable[bytes, bytes]] = [
        channel.unary_unary("/test/Call") for channel in channels
    ]
    calls = [stub.future(b"asked", timeout=60) for stub in stubs for _ in range(8)]
    time.sleep(1.0)
    assert not any(each.done() for each in calls)
    may_look.set()
    answers = [each.exception() or each.result() for each in calls]
    answered.set()
    serving.join(60)
    for channel in channels:
        channel.close()

    assert answers == [b"asked"] * count
