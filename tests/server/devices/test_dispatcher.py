"""Work orders down streams: each lease once, to the newest stream of a device."""

import asyncio

import pytest

from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.devices.dispatcher import Dispatcher, come_back
from server.devices.refused_calls import RefusedError
from server.devices.sessions import Session
from server.records.failpoints import UNARMED


class Work:
    """Hold the leases there are to give."""

    def __init__(self) -> None:
        self.nonces: dict[str, bytes] = {}
        self.dispatcher = Dispatcher(self.work_for, UNARMED)

    def work_for(self, client: str, held: bytes | None) -> pb.WorkOrder | None:
        nonce = self.nonces.get(client)
        return None if nonce is None else pb.WorkOrder(lease=pb.Lease(nonce=nonce))


def orders_of(session: Session) -> list[str]:
    """Return everything that was pushed, in words."""

    async def read() -> list[str]:
        found: list[str] = []
        orders = session.orders()
        while True:
            try:
                order = await asyncio.wait_for(anext(orders), 0.01)
            except (TimeoutError, StopAsyncIteration):
                return found
            except RefusedError as refused:
                return [*found, str(refused.code)]
            kind = order.WhichOneof("order")
            nonce = getattr(order, kind).nonce.decode() if kind != "retry_after" else ""
            found.append(f"{kind} {nonce}".strip())

    return asyncio.run(read())


def test_a_device_gets_each_lease_once() -> None:
    work = Work()
    work.nonces["a"] = b"1"
    session = work.dispatcher.open("a")

    work.dispatcher.offer_all()
    work.dispatcher.offer_all()

    assert orders_of(session) == ["lease 1"]


def test_for_a_device_at_work_nobody_makes_an_order_again() -> None:
    asked: list[bytes | None] = []

    def work_for(client: str, held: bytes | None) -> pb.WorkOrder | None:
        asked.append(held)
        return None if held else pb.WorkOrder(lease=pb.Lease(nonce=b"1"))

    dispatcher = Dispatcher(work_for, UNARMED)
    session = dispatcher.open("a")
    dispatcher.offer_all()

    assert asked == [None, b"1"]
    assert orders_of(session) == ["lease 1"]


def test_a_device_that_was_told_to_leave_is_told_once_however_many_leave_before_it() -> None:
    asked: list[str] = []

    def work_for(client: str, held: bytes | None) -> pb.WorkOrder:
        asked.append(client)
        return come_back("finished", 3600)

    dispatcher = Dispatcher(work_for, UNARMED)
    dispatcher.open("a")
    for _ in range(3):
        dispatcher.offer_all()

    assert asked == ["a"]


def test_work_that_gives_way_is_ended_and_work_that_was_answered_is_not() -> None:
    work = Work()
    work.nonces["a"] = b"1"
    session = work.dispatcher.open("a")

    work.nonces["a"] = b"2"
    work.dispatcher.offer_all()
    work.dispatcher.done("a")
    work.nonces["a"] = b"3"
    work.dispatcher.offer_all()

    assert orders_of(session) == ["lease 1", "lease_ended 1", "lease 2", "lease 3"]


def test_a_device_that_waits_gets_work_when_there_is_some() -> None:
    work = Work()
    session = work.dispatcher.open("a")
    work.nonces["a"] = b"1"

    work.dispatcher.offer_all()

    assert orders_of(session) == ["lease 1"]


def test_only_those_who_have_not_finished_are_told_that_their_lease_ended() -> None:
    work = Work()
    work.nonces.update(a=b"1", b=b"2")
    done, late, idle = (work.dispatcher.open(name) for name in "abc")

    work.dispatcher.end_leases("the round closed", {"a"})
    work.nonces.update(a=b"3", b=b"4")
    work.dispatcher.offer_all()

    assert orders_of(done) == ["lease 1", "lease 3"]
    assert orders_of(late) == ["lease 2", "lease_ended 2", "lease 4"]
    assert orders_of(idle) == []


def test_a_device_that_comes_back_gets_its_lease_again() -> None:
    work = Work()
    work.nonces["a"] = b"1"
    older = work.dispatcher.open("a")

    newer = work.dispatcher.open("a")

    assert orders_of(older) == ["lease 1", str(RefusalCode.IDENTITY_IN_USE)]
    assert orders_of(newer) == ["lease 1"]
    # The older stream's end is not the device's leaving.
    assert not work.dispatcher.close(older)
    assert work.dispatcher.clients == ["a"]
    assert work.dispatcher.close(newer)
    assert len(work.dispatcher) == 0


def test_dismissed_devices_are_told_when_to_come_back_and_their_stream_ends() -> None:
    work = Work()
    session = work.dispatcher.open("a")

    work.dispatcher.dismiss_all("finished", 3600)
    session.push(come_back("never read", 1))

    assert orders_of(session) == ["retry_after"]


def test_a_revoked_device_is_refused_on_its_stream() -> None:
    work = Work()
    session = work.dispatcher.open("a")
    work.dispatcher.expel("b")

    work.dispatcher.expel("a")

    assert orders_of(session) == [str(RefusalCode.CERTIFICATE_REVOKED)]


@pytest.mark.parametrize("count", [1, 50])
def test_orders_wait_for_a_device_that_reads_slowly(count: int) -> None:
    session = Session("a")
    for number in range(count):
        session.push(pb.WorkOrder(lease=pb.Lease(nonce=str(number).encode())))

    assert orders_of(session) == [f"lease {number}" for number in range(count)]


def test_a_lease_that_goes_on_is_neither_ended_nor_given_again() -> None:
    work = Work()
    work.nonces.update(a=b"1", b=b"2")
    sessions = [work.dispatcher.open(client) for client in ("a", "b")]

    work.dispatcher.end_leases("the round closed", going_on={b"2"})
    work.nonces["a"] = b"3"
    work.dispatcher.offer_all()

    assert [orders_of(session) for session in sessions] == [
        ["lease 1", "lease_ended 1", "lease 3"],
        ["lease 2"],
    ]


def test_a_device_whose_work_is_done_gets_what_there_is_now() -> None:
    work = Work()
    work.nonces["a"] = b"1"
    session = work.dispatcher.open("a")

    work.nonces["a"] = b"2"
    work.dispatcher.offer("a", answered=b"1")
    work.dispatcher.offer("nobody", answered=b"1")

    assert orders_of(session) == ["lease 1", "lease 2"]


def test_a_device_that_was_given_another_lease_before_its_answer_counted_gets_it_once() -> None:
    work = Work()
    work.nonces["a"] = b"1"
    session = work.dispatcher.open("a")
    work.nonces["a"] = b"2"
    work.dispatcher.offer_all()

    work.dispatcher.offer("a", answered=b"1")
    work.dispatcher.done("a", answered=b"1")
    work.dispatcher.offer_all()

    assert orders_of(session) == ["lease 1", "lease_ended 1", "lease 2"]


def test_a_crowd_that_tells_a_version_each_is_shown_as_one() -> None:
    work = Work()
    for number in range(20):
        work.dispatcher.open(f"current-{number}", "0.1.0")
    for number in range(30):
        work.dispatcher.open(f"stranger-{number}", f"9.{number}")
    work.dispatcher.open("odd", "a line\nof another")

    shown = work.dispatcher.versions

    # The sixteen most frequent: the current one and fifteen strangers; sixteen are left.
    assert shown["0.1.0"] == 20
    assert shown["other"] == 16
    assert (len(shown), shown.total()) == (17, 51)
