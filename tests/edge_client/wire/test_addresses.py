"""The first address that answers is taken, and one that does not costs as little as it can."""

import asyncio
import itertools
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

import edge_client.wire.addresses as addresses_module
from edge_client.wire.addresses import Addresses
from edge_client.wire.handshake import shown_certificates
from edge_client.wire.refusal import UnreachableError
from privacy.identities.certificates import CertificateError

Look = Callable[[str], Awaitable[str]]
NAMES = ["a:1", "b:1", "c:1"]


def found(addresses: Addresses, look: Look) -> tuple[str, float]:
    """Return what was seen, and the seconds that it took."""
    began = time.monotonic()
    seen = asyncio.run(asyncio.wait_for(addresses.find(look), 60))
    return seen, time.monotonic() - began


def answering(after_s: dict[str, float | Exception], begun: list[str] | None = None) -> Look:
    """Return a look at coordinators that answer after some seconds, or fail at once."""

    async def look(address: str) -> str:
        if begun is not None:
            begun.append(address)
        what = after_s[address]
        if isinstance(what, Exception):
            raise what
        await asyncio.sleep(what)
        return f"seen at {address}"

    return look


def refused(address: str) -> UnreachableError:
    return UnreachableError(f"{address} cannot be reached: refused")


def test_a_refusal_costs_no_time_and_the_one_that_serves_comes_first_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No search that waited for silence would end in time.
    monkeypatch.setattr(addresses_module, "SILENCE_S", 600.0)
    addresses, begun = Addresses(NAMES), list[str]()
    look = answering({"a:1": refused("a:1"), "b:1": 0.0, "c:1": 0.0}, begun)
    assert (addresses.current, addresses.are_several) == ("a:1", True)

    seen, _ = found(addresses, look)
    assert seen == "seen at b:1"
    found(addresses, look)

    # The second time the first was not asked, and the third never.
    assert begun == ["a:1", "b:1", "b:1"]
    assert addresses.current == "b:1"


def test_one_that_is_silent_costs_a_second_and_one_that_is_slow_may_still_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses_module, "SILENCE_S", 0.1)

    seen, took_s = found(Addresses(NAMES), answering({"a:1": 600.0, "b:1": 600.0, "c:1": 0.0}))
    assert (seen, took_s >= 0.2) == ("seen at c:1", True)
    slow, _ = found(Addresses(NAMES), answering({"a:1": 0.15, "b:1": 60.0, "c:1": 60.0}))

    assert slow == "seen at a:1"


def test_looks_that_lost_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses_module, "SILENCE_S", 0.01)
    ended: list[str] = []

    async def look(address: str) -> None:
        try:
            await asyncio.sleep(0.0 if address == "c:1" else 60.0)
        finally:
            ended.append(address)

    asyncio.run(Addresses(NAMES).find(look))

    assert sorted(ended) == NAMES


def test_an_address_that_is_passed_over_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses_module, "SILENCE_S", 600.0)
    addresses, begun = Addresses(NAMES), list[str]()
    look = answering(dict.fromkeys(NAMES, 0.0), begun)

    for _ in range(4):
        found(addresses, look)
        addresses.pass_over()

    assert begun == ["a:1", "b:1", "c:1", "a:1"]


def test_where_nobody_answers_every_address_is_named_with_what_it_did() -> None:
    wrong = CertificateError("certificate is not of this authority")
    addresses = Addresses(NAMES)
    look = answering({"a:1": refused("a:1"), "b:1": wrong, "c:1": refused("c:1")})

    with pytest.raises(UnreachableError) as failed:
        found(addresses, look)

    assert str(failed.value) == (
        "no coordinator can be reached: a:1 cannot be reached: refused; b:1: certificate is not of "
        "this authority; c:1 cannot be reached: refused"
    )
    assert addresses.current == "a:1"


@pytest.mark.parametrize("error", [refused("a:1"), CertificateError("not of this authority")])
def test_the_failure_of_an_only_address_is_told_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as failed:
        found(Addresses(["a:1"]), answering({"a:1": error}))

    assert failed.value is error


def test_what_no_address_can_mend_ends_the_search() -> None:
    look = answering({"a:1": refused("a:1"), "b:1": OSError("no key file"), "c:1": 0.0})

    with pytest.raises(OSError, match="no key file"):
        found(Addresses(NAMES), look)


def test_all_that_may_be_given_are_tried_before_the_longest_wait_between_check_ins() -> None:
    from edge_client.wire.backoff import LAST_CEILING_S
    from edge_client.wire.handshake import _TIMEOUT_S
    from privacy.foundation.host_port import MOST_ADDRESSES

    # Else an agent would take the search for a stream that held, and begin its waits anew.
    assert (MOST_ADDRESSES - 1) * addresses_module.SILENCE_S + _TIMEOUT_S < LAST_CEILING_S


def test_sockets_that_are_closed_or_say_nothing_are_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses_module, "SILENCE_S", 0.1)
    taken = itertools.count()

    async def look(address: str) -> str:
        if address.endswith(":1"):
            next(taken)
            return address
        return str(await shown_certificates(address))

    with socket.create_server(("127.0.0.1", 0)) as mute, socket.socket() as bound:
        # Bound and not listening: a connection is refused.
        bound.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (bound, mute)]
        addresses = Addresses([*(f"127.0.0.1:{port}" for port in ports), "c:1"])

        seen, took_s = found(addresses, look)

    assert (seen, next(taken)) == ("c:1", 1)
    assert took_s >= 0.1
