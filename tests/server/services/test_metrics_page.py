"""The page for Prometheus opens where it is asked for, survives bad callers, and leaves nothing."""

import asyncio
import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator

import pytest
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from server.config.listen import ListenSettings
from server.services.listeners import ListenError
from server.services.metrics_page import _Call, open_metrics

Within = Callable[[int], Awaitable[None]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but the page's own end let go of a caller that is slow or silent."""
    monkeypatch.setattr(_Call, "timeout", 60.0)


class One(Collector):
    """A figure, or what goes wrong with it."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def collect(self) -> Iterator[Metric]:
        if self.error is not None:
            raise self.error
        yield GaugeMetricFamily("sotto_one", "A figure", 1.0)


def opened(
    within: Within, collector: Collector | None = None, address: str = "127.0.0.1:0"
) -> int | None:
    """Open the page, do something within, and return the port that it had."""

    async def run() -> int | None:
        async with open_metrics(ListenSettings(metrics=address), collector or One()) as port:
            if port is not None:
                await within(port)
            return port

    return asyncio.run(run())


def asked(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        told: str = page.read().decode()
    return told


async def nothing(_: int) -> None:
    """Do nothing within."""


def test_a_page_tells_its_figures_and_leaves_neither_port_nor_thread() -> None:
    async def ask(port: int) -> None:
        assert "sotto_one 1.0" in await asyncio.to_thread(asked, port)

    port = opened(ask)

    assert port is not None
    assert "metrics" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()


def test_without_an_address_there_is_no_page() -> None:
    async def run() -> int | None:
        async with open_metrics(ListenSettings(), One()) as port:
            return port

    assert asyncio.run(run()) is None


def test_a_taken_address_is_refused_with_the_settings_name_and_what_to_do() -> None:
    async def open_again(port: int) -> None:
        with pytest.raises(ListenError) as refused:
            async with open_metrics(ListenSettings(metrics=f"127.0.0.1:{port}"), One()):
                pass
        assert str(refused.value) == (
            f"listen.metrics must be a free address of this machine, got 127.0.0.1:{port}: Address "
            "already in use; choose another port, or stop what listens there"
        )

    opened(open_again)


def test_who_asks_nothing_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, setup = threading.Event(), _Call.setup

    def noted(call: _Call) -> None:
        setup(call)
        answered.set()

    async def connect(port: int) -> None:
        silent.append(socket.create_connection(("127.0.0.1", port)))
        silent[0].sendall(b"GET /metrics HT")
        assert await asyncio.to_thread(answered.wait, 60)
        # A second one waits behind it.
        silent.append(socket.create_connection(("127.0.0.1", port)))

    silent: list[socket.socket] = []
    monkeypatch.setattr(_Call, "setup", noted)
    started = time.monotonic()

    opened(connect)

    assert time.monotonic() - started < 50
    for connection in silent:
        connection.close()


def test_a_figure_that_cannot_be_read_costs_one_answer_and_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = One()

    async def ask(port: int) -> None:
        collector.error = TimeoutError("something inside")
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(asked, port)
        assert refused.value.code == 503
        assert b"ask again" in refused.value.read()
        collector.error = None
        assert "sotto_one 1.0" in await asyncio.to_thread(asked, port)

    opened(ask, collector)

    assert [record.getMessage() for record in caplog.records] == [
        "no figures for Prometheus this time: TimeoutError"
    ]


@pytest.mark.parametrize(("address", "warnings"), [("127.0.0.1:0", 0), ("0.0.0.0:0", 1)])
def test_figures_that_leave_the_machine_are_warned_of(
    address: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        opened(nothing, address=address)

    told = [record.getMessage() for record in caplog.records]
    assert len(told) == warnings
    assert all("is not loopback" in line and "network policy" in line for line in told)
