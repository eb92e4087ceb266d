"""One client gets a sixteenth of the room, and its work one thread at a time."""

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from export.serve.doors import inference_protocol
from export.serve.doors.desk import Desk
from export.serve.doors.inference_protocol import InferRequest, infer
from export.serve.doors.room import NoRoomError, Room, TooLargeError, TooManyCallsError
from export.serve.folder.settings import LimitSettings, ListenSettings, read_settings
from export.serve.loaded.metrics import ServingMetrics
from export.serve.running import make_desk
from tests.export.serve.running_server import serving_folder

# 64 bodies of 100 bytes: one client has 4 calls and 400 bytes.
LIMITS = LimitSettings(body_bytes=100, waiting_bytes=6400)


@pytest.fixture
def room() -> Room:
    return Room(LIMITS, ServingMetrics())


@pytest.fixture
def desk(tmp_path: Path, bundles: dict[int, Path]) -> Desk:
    folder = serving_folder(tmp_path / "folder", bundles[3])
    return make_desk(folder, read_settings(folder.settings))


def test_a_client_has_so_many_calls_and_another_has_its_own(room: Room) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(4):
            held.enter_context(room.call("ann"))
        with pytest.raises(TooManyCallsError), room.call("ann"):
            pass
        held.enter_context(room.call("bob"))

    with room.call("ann"):
        pass


def test_a_call_gives_back_what_it_took(room: Room) -> None:
    for _ in range(100):
        with room.call("ann") as call:
            call.take_body(60)
            with pytest.raises(TooLargeError, match="at most 100 bytes"):
                call.take_body(41)
            call.take_answer(300)
            assert call.taken_bytes == 360


def test_answers_that_wait_are_counted_with_bodies(room: Room) -> None:
    with room.call("ann") as first, room.call("ann") as second:
        first.take_answer(350)
        with pytest.raises(TooManyCallsError):
            second.take_answer(51)
        first.give_back(350)
        # Larger than any share, alone: it takes the whole share and no more.
        second.take_answer(10_000)
        assert second.taken_bytes == 400
        with pytest.raises(TooManyCallsError):
            first.take_body(1)


def test_all_clients_together_have_no_more_than_there_is(room: Room) -> None:
    with contextlib.ExitStack() as held:
        for number in range(16):
            held.enter_context(room.call(f"client-{number}")).take_answer(400)
        with pytest.raises(NoRoomError), room.call("one-more") as call:
            call.take_body(1)


def test_a_client_s_work_leaves_a_thread_to_the_others(desk: Desk) -> None:
    running: list[str] = []
    go_on = threading.Event()

    def slow() -> None:
        running.append("mallory")
        assert go_on.wait(60)

    async def ask() -> list[str]:
        held = [asyncio.create_task(desk.on_thread("mallory", slow)) for _ in range(20)]
        while not running:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        held[0].cancel()  # A thread cannot be stopped: its turn is not over.
        await desk.on_thread("bob", lambda: running.append("bob"))
        seen = list(running)
        go_on.set()
        await asyncio.gather(*held, return_exceptions=True)
        return seen

    assert asyncio.run(ask()) == ["mallory", "bob"]
    assert running.count("mallory") == 20


def test_an_answer_in_numbers_is_encoded_on_a_model_thread(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()
    encoded = inference_protocol._numbers_json

    # Any: numbers of either kind.
    def noted(flat: Any) -> bytes:
        threads.add(threading.current_thread().name.partition("_")[0])
        return encoded(flat)

    monkeypatch.setattr(inference_protocol, "_numbers_json", noted)
    asked = {
        "inputs": [
            {"name": "tokens", "shape": [1, 1], "datatype": "INT64", "data": [1]},
            {"name": "k", "shape": [1], "datatype": "INT64", "data": [3]},
        ]
    }
    answer = asyncio.run(infer("keyboard", InferRequest.model_validate(asked), "ann", desk))

    assert threads == {"model"}
    named = {one["name"]: one for one in msgspec.json.decode(bytes(answer.body))["outputs"]}
    assert len(named["distribution"]["data"]) == 19


def test_figures_in_the_clear_are_refused_off_loopback() -> None:
    assert ListenSettings().metrics_address.startswith("127.0.0.1:")
    with pytest.raises(ValueError, match=r"metrics_address '0.0.0.0:8082' is not loopback"):
        ListenSettings(metrics_address="0.0.0.0:8082")
