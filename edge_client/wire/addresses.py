"""Find the coordinator at one of several addresses: the first that answers, in their order.

A machine that stands by refuses a connection at once, and one that is gone says nothing at all. So
the next address is tried as soon as one has failed, and beside it once it has been silent for a
second: one that is merely slow may still win.

References:
    RFC 8305 (Happy Eyeballs), section 5: connection attempts that begin one after another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from edge_client.wire.refusal import UnreachableError
from privacy.identities.certificates import CertificateError

T = TypeVar("T")

SILENCE_S = 1.0
"""Seconds after which the next address is tried too: a handshake over a slow line takes one."""


class Addresses:
    """The addresses of one coordinator, ``host:port``, in the order in which they come next."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._order = list(addresses)

    @property
    def current(self) -> str:
        """Return the address that answered last; before any has, the preferred one."""
        return self._order[0]

    @property
    def are_several(self) -> bool:
        """Return whether there is a choice."""
        return len(self._order) > 1

    def pass_over(self) -> None:
        """Begin with the next address: whoever answers at the current one does not serve."""
        self._order.append(self._order.pop(0))

    async def find(self, look: Callable[[str], Awaitable[T]]) -> T:
        """Make the first address that passes a look the current one; return what was seen there.

        Raises:
            UnreachableError: If none passes it; the text has what each one did.
            CertificateError: If the only address fails with that.
        """
        address, seen = await _first_that_passes(self._order, look)
        while self._order[0] != address:
            self.pass_over()
        return seen


async def _first_that_passes(
    addresses: Sequence[str], look: Callable[[str], Awaitable[T]]
) -> tuple[str, T]:
    left = list(addresses)
    looks: dict[asyncio.Future[T], str] = {}
    failures: list[tuple[str, Exception]] = []
    try:
        while left or looks:
            if left:
                address = left.pop(0)
                looks[asyncio.ensure_future(look(address))] = address
            done, _ = await asyncio.wait(
                looks,
                timeout=SILENCE_S if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for ended in done:
                address = looks.pop(ended)
                try:
                    return address, ended.result()
                except (CertificateError, UnreachableError) as error:
                    failures.append((address, error))
    finally:
        for under_way in looks:
            under_way.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
    raise _all_failed(failures)


def _all_failed(failures: list[tuple[str, Exception]]) -> Exception:
    if len(failures) == 1:
        return failures[0][1]
    said = [
        str(error) if str(error).startswith(address) else f"{address}: {error}"
        for address, error in failures
    ]
    return UnreachableError(f"no coordinator can be reached: {'; '.join(said)}")
