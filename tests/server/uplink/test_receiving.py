"""Uploads onto disk, with connections that break and processes that die."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError
from server.records.threads import Threads
from server.uplink.receiving import LARGEST_CHUNK_BYTES, UploadDesk

NONCE, OTHER_NONCE = b"n" * 16, b"o" * 16
FIRST, SECOND = b"1" * 16, b"2" * 16


@pytest.fixture(scope="module")
def threads() -> Iterator[Threads]:
    with ThreadPoolExecutor(2) as executor:
        yield Threads(executor)


@pytest.fixture
def desk(tmp_path: Path, threads: Threads) -> UploadDesk:
    return UploadDesk(tmp_path / "uploads", threads)


async def pieces_of(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def receive(desk: UploadDesk, offset: int, *pieces: bytes, nonce: bytes = NONCE) -> int:
    return asyncio.run(desk.receive(nonce, offset, pieces_of(*pieces)))


def refusal_of(desk: UploadDesk, offset: int, *pieces: bytes) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        receive(desk, offset, *pieces)
    return caught.value.code


def test_pieces_end_up_in_their_order(desk: UploadDesk) -> None:
    assert desk.open(NONCE, FIRST, 6) == 0

    assert receive(desk, 0, b"ab", b"c") == 3
    assert receive(desk, 3, b"def") == 6

    assert desk.completed(NONCE, FIRST).read_bytes() == b"abcdef"


def test_whoever_else_takes_the_pieces_gets_those_that_are_written(desk: UploadDesk) -> None:
    taken: list[bytes] = []

    def take(piece: bytes | bytearray | memoryview) -> None:
        taken.append(bytes(piece))

    assert desk.beginning(NONCE, 0) is None
    desk.open(NONCE, FIRST, 4)

    async def receive_all() -> None:
        await desk.receive(NONCE, 0, pieces_of(b"ab", b"c", b"de"), also=take)

    begun = desk.beginning(NONCE, 0)
    assert begun is not None
    assert begun[1] == FIRST
    with pytest.raises(RefusedError):
        asyncio.run(receive_all())

    assert taken == [b"ab", b"c"]
    assert begun[0].read_bytes() == b"abc"
    # The rest of an upload is not its beginning.
    assert desk.beginning(NONCE, 3) is None
    assert desk.beginning(NONCE, 0) is None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.binary(min_size=1, max_size=8), max_size=4), max_size=5))
def test_any_number_of_broken_connections_leaves_the_same_bytes(
    threads: Threads, tmp_path_factory: pytest.TempPathFactory, runs: list[list[bytes]]
) -> None:
    whole = b"".join(piece for pieces in runs for piece in pieces)
    desk = UploadDesk(tmp_path_factory.mktemp("uploads"), threads)

    for pieces in runs:
        offset = desk.open(NONCE, FIRST, len(whole))
        receive(desk, offset, *pieces)

    desk.open(NONCE, FIRST, len(whole))
    assert desk.completed(NONCE, FIRST).read_bytes() == whole


def test_a_restarted_process_goes_on_where_the_file_ends(
    desk: UploadDesk, tmp_path: Path, threads: Threads
) -> None:
    desk.open(NONCE, FIRST, 6)
    receive(desk, 0, b"abc")

    again = UploadDesk(tmp_path / "uploads", threads)

    assert again.open(NONCE, FIRST, 6) == 3
    assert receive(again, 3, b"def") == 6
    assert again.completed(NONCE, FIRST).read_bytes() == b"abcdef"


def test_another_message_takes_the_place_of_the_one_before(
    desk: UploadDesk, tmp_path: Path, threads: Threads
) -> None:
    desk.open(NONCE, FIRST, 6)
    receive(desk, 0, b"abcdef")

    # In the same process, and in one that only finds the file.
    for current in (desk, UploadDesk(tmp_path / "uploads", threads)):
        assert current.open(NONCE, SECOND, 6) == 0
        assert [path.name for path in (tmp_path / "uploads").iterdir()] == [
            f"{NONCE.hex()}.{SECOND.hex()}.part"
        ]
        with pytest.raises(RefusedError):
            current.completed(NONCE, FIRST)


def test_what_does_not_fit_is_refused_and_what_came_before_is_kept(desk: UploadDesk) -> None:
    assert refusal_of(desk, 0, b"x") is RefusalCode.WRONG_OFFSET
    desk.open(NONCE, FIRST, 6)

    assert refusal_of(desk, 1, b"x") is RefusalCode.WRONG_OFFSET
    assert refusal_of(desk, 0, b"abc", b"") is RefusalCode.CHUNK_SIZE
    assert desk.open(NONCE, FIRST, 6) == 3
    assert refusal_of(desk, 3, bytes(LARGEST_CHUNK_BYTES + 1)) is RefusalCode.CHUNK_SIZE
    assert refusal_of(desk, 3, b"de", b"fg") is RefusalCode.WRONG_SIZE
    assert desk.open(NONCE, FIRST, 6) == 5
    assert receive(desk, 5, b"f") == 6
    assert desk.completed(NONCE, FIRST).read_bytes() == b"abcdef"


def test_an_upload_counts_as_complete_with_all_its_bytes_only(desk: UploadDesk) -> None:
    desk.open(NONCE, FIRST, 6)
    receive(desk, 0, b"abcde")

    for nonce, message in ((NONCE, FIRST), (NONCE, SECOND), (OTHER_NONCE, FIRST)):
        with pytest.raises(RefusedError) as caught:
            desk.completed(nonce, message)
        assert caught.value.code is RefusalCode.INCOMPLETE_UPLOAD


def test_a_newer_stream_takes_over_from_one_that_hangs(desk: UploadDesk) -> None:
    desk.open(NONCE, FIRST, 6)

    async def take_over() -> RefusalCode:
        goes_on = asyncio.Event()

        async def hanging() -> AsyncIterator[bytes]:
            yield b"abc"
            await goes_on.wait()
            yield b"def"

        older = asyncio.create_task(desk.receive(NONCE, 0, hanging()))
        while desk.open(NONCE, FIRST, 6) != 3:
            # The piece is written when the older stream asks for its next.
            await asyncio.sleep(0)
        assert await desk.receive(NONCE, 3, pieces_of(b"def")) == 6
        # The older one ends though nothing comes that could wake it.
        assert not goes_on.is_set()
        return await code_of(older)

    assert asyncio.run(take_over()) is RefusalCode.UPLOAD_SUPERSEDED
    assert desk.completed(NONCE, FIRST).read_bytes() == b"abcdef"


def test_a_full_disk_is_told_and_keeps_what_was_written(desk: UploadDesk, tmp_path: Path) -> None:
    # Every write to this file fails as on a full disk.
    (tmp_path / "uploads" / f"{NONCE.hex()}.{FIRST.hex()}.part").symlink_to("/dev/full")
    desk.open(NONCE, FIRST, 6)

    assert refusal_of(desk, 0, b"abc") is RefusalCode.DISK_FULL
    assert desk.open(NONCE, FIRST, 6) == 0


def test_sweeping_drops_uploads_of_this_process_and_of_an_earlier_one(
    desk: UploadDesk, tmp_path: Path, threads: Threads
) -> None:
    desk.open(NONCE, FIRST, 6)
    again = UploadDesk(tmp_path / "uploads", threads)
    again.open(OTHER_NONCE, FIRST, 6)

    again.sweep()

    assert not any((tmp_path / "uploads").iterdir())


def test_uploads_are_their_owners_alone(desk: UploadDesk, tmp_path: Path) -> None:
    desk.open(NONCE, FIRST, 6)

    for path in (tmp_path / "uploads", *(tmp_path / "uploads").iterdir()):
        assert path.stat().st_mode & 0o077 == 0


def held_by_this_process() -> tuple[int, int]:
    """Return the open descriptors of uploads, and the bytes of those that have no name any more."""
    opened, nameless = 0, 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target, state = str(descriptor.readlink()), descriptor.stat()
        except OSError:
            continue
        if ".part" in target:
            opened += 1
            nameless += state.st_size if target.endswith(" (deleted)") else 0
    return opened, nameless


async def hanging(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    await asyncio.Event().wait()


async def begin(desk: UploadDesk, message_id: bytes) -> asyncio.Task[int]:
    """Open a message and start a stream of it that stops after 1,000 bytes."""
    desk.open(NONCE, message_id, 2000)
    stream = asyncio.create_task(desk.receive(NONCE, 0, hanging(bytes(1000))))
    while desk.open(NONCE, message_id, 2000) != 1000:
        await asyncio.sleep(0.001)
    return stream


async def code_of(stream: "asyncio.Task[int]") -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        await asyncio.wait_for(stream, 60)
    return caught.value.code


def test_sixty_replaced_uploads_hold_one_file_together(desk: UploadDesk) -> None:
    async def replace_often() -> list[RefusalCode]:
        streams = [await begin(desk, bytes([number]) * 16) for number in range(60)]
        ended = [await code_of(stream) for stream in streams[:-1]]
        assert held_by_this_process() == (1, 0)
        desk.forget(NONCE)
        return [*ended, await code_of(streams[-1])]

    assert asyncio.run(replace_often()) == 59 * [RefusalCode.UPLOAD_SUPERSEDED] + [RefusalCode.LATE]
    assert held_by_this_process() == (0, 0)


@pytest.mark.parametrize("end", [UploadDesk.sweep, lambda desk: desk.forget(NONCE)])
def test_the_end_of_a_lease_or_of_the_round_ends_its_stream(
    desk: UploadDesk, end: Callable[[UploadDesk], None]
) -> None:
    async def end_it() -> RefusalCode:
        stream = await begin(desk, FIRST)
        end(desk)
        return await code_of(stream)

    assert asyncio.run(end_it()) is RefusalCode.LATE
    assert held_by_this_process() == (0, 0)


def test_a_stream_that_waits_for_its_next_piece_holds_none_in_memory(desk: UploadDesk) -> None:
    handed = [memoryview(bytes(1000))]
    is_held = weakref.ref(handed[0])

    async def then_nothing() -> AsyncIterator[memoryview]:
        yield handed.pop()
        await asyncio.Event().wait()

    async def until_let_go() -> None:
        desk.open(NONCE, FIRST, 2000)
        stream = asyncio.create_task(desk.receive(NONCE, 0, then_nothing()))
        while is_held() is not None:
            await asyncio.sleep(0.001)
        assert desk.open(NONCE, FIRST, 2000) == 1000
        stream.cancel()
        await asyncio.wait({stream})

    asyncio.run(asyncio.wait_for(until_let_go(), 60))


def test_a_crowd_of_uploads_reads_ahead_of_the_disk_for_a_few_of_them_only(
    desk: UploadDesk,
) -> None:
    count, read, may_write = 40, 0, threading.Event()

    async def three_pieces() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(3):
            read += 1
            yield bytes(1000)

    def wait_for_the_disk(_: bytes | bytearray | memoryview) -> None:
        may_write.wait(60)

    async def send(number: int) -> int:
        nonce = bytes([number]) * 16
        desk.open(nonce, FIRST, 3000)
        return await desk.receive(nonce, 0, three_pieces(), also=wait_for_the_disk)

    async def send_all() -> list[int]:
        sending = [asyncio.create_task(send(number)) for number in range(count)]
        for _ in range(100):
            await asyncio.sleep(0)
        assert count < read <= count + 16
        may_write.set()
        return await asyncio.gather(*sending)

    assert asyncio.run(send_all()) == [3000] * count


def test_a_stream_without_a_next_piece_ends_in_time_and_keeps_what_came(
    tmp_path: Path, threads: Threads
) -> None:
    impatient = UploadDesk(tmp_path / "uploads", threads, piece_s=0.2)

    async def wait() -> RefusalCode:
        return await code_of(await begin(impatient, FIRST))

    assert asyncio.run(wait()) is RefusalCode.TOO_SLOW
    assert held_by_this_process() == (0, 0)
    assert impatient.open(NONCE, FIRST, 2000) == 1000
