"""Open sealed updates ahead of their turn, and hand them on in their order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from privacy.foundation.shortages import is_shortage
from server.aggregation.closing_workers import ClosingWorkers
from server.devices.refused_calls import RefusedError

Sealed = TypeVar("Sealed")
Content = TypeVar("Content")
Looked = TypeVar("Looked")
_Loan = AbstractContextManager[tuple[Content, bytes]]


class OpenedAhead(Generic[Sealed, Content, Looked]):
    """What ``look`` makes of each update, in their order; None for one that no longer opens.

    What lies in an update's memory is valid until ``workers.lag`` + 1 further ones were asked for;
    the last ones until the end of the context.
    """

    def __init__(
        self,
        updates: Iterable[Sealed],
        opened: "Callable[[Sealed], _Loan[Content]]",
        look: Callable[[Content], Looked],
        workers: ClosingWorkers,
    ) -> None:
        """Open each by ``opened``, which lends, and look at it in the same thread."""
        self._updates = iter(updates)
        self._opened, self._look, self._workers = opened, look, workers
        self._under_way: deque[tuple[_Loan[Content], Future[Looked | None]]] = deque()
        self._lent: deque[_Loan[Content]] = deque()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give everything back: a caller that gives up must not take the buffers with it."""
        for loan, entering in self._under_way:
            if entering.exception() is None and entering.result() is not None:
                self._lent.append(loan)
        self._under_way.clear()
        self._give_back(0)

    def __iter__(self) -> Iterator[Looked | None]:
        """Return itself."""
        return self

    def __next__(self) -> Looked | None:
        """Return the next one.

        Raises:
            OSError: If there is no descriptor left to open it with.
        """
        self._give_back(self._workers.lag)
        while len(self._under_way) < self._workers.ahead:
            sealed = next(self._updates, None)
            if sealed is None:
                break
            loan = self._opened(sealed)
            entering = self._workers.submit(partial(_enter, loan, self._look))
            self._under_way.append((loan, entering))
        if not self._under_way:
            raise StopIteration
        loan, entering = self._under_way.popleft()
        looked = entering.result()
        if looked is not None:
            self._lent.append(loan)
        return looked

    def _give_back(self, kept: int) -> None:
        while len(self._lent) > kept:
            self._lent.popleft().__exit__(None, None, None)


def _enter(loan: "_Loan[Content]", look: Callable[[Content], Looked]) -> Looked | None:
    try:
        content, _ = loan.__enter__()
    except RefusedError:
        return None
    except OSError as error:
        # An acknowledged update must not be lost for want of a descriptor.
        if is_shortage(error):
            raise
        return None
    try:
        return look(content)
    except BaseException:
        loan.__exit__(None, None, None)
        raise
