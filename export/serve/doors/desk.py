"""Hold what every route works with, and find the client of a token."""

import asyncio
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from export.page.page_files import PageFile
from export.serve.doors.room import Room
from export.serve.folder.folder import ServingFolder
from export.serve.folder.tokens import KnownTokens
from export.serve.loaded.keyboard_version import ServedModel
from export.serve.loaded.metrics import ServingMetrics
from export.serve.loaded.people import People
from export.serve.loaded.shelf import Shelf
from export.serve.loaded.voices import Voices
from privacy.foundation.rate_limit import RateLimit

_Found = TypeVar("_Found")

_bearer = HTTPBearer(auto_error=False, description="a client's token, from `sotto-serve token`")


@dataclass
class Desk:
    """The parts that a server works with.

    Attributes:
        people: Everyone's models and texts.
        tokens: The token of each client; exchanged whole when the file changes.
        rate_limit: How often a client may ask.
        room: What clients may have under way.
        threads: The threads that run models.
        page: Files of the page, by address.
        is_closing: Whether the server is about to stop.
    """

    folder: ServingFolder
    shelf: Shelf[ServedModel]
    people: People
    tokens: KnownTokens
    rate_limit: RateLimit
    room: Room
    metrics: ServingMetrics
    threads: ThreadPoolExecutor
    voices: Voices
    page: Mapping[str, PageFile]
    is_closing: bool = False

    def client_of(self, token: str) -> str:
        """Return the client of a token; NotKnownError if it is nobody's."""
        client = self.tokens.client_of(token)
        if client is None:
            raise NotKnownError
        return client

    def count_question(self, client: str) -> None:
        """Count that a client asks; TooOftenError if it may not now."""
        wait_s = self.rate_limit.wait_s(client)
        if wait_s > 0:
            raise TooOftenError(wait_s)

    async def on_thread(self, client: str, work: Callable[[], _Found]) -> _Found:
        """Do a client's work on one of the threads where models run, and return what it gives.

        A client has one thread at a time: its other work waits, so that the others' need not.
        """
        loop, turn = asyncio.get_running_loop(), self.room.turn_of(client)
        await turn.acquire()
        job = None
        try:
            job = self.threads.submit(work)
            return await asyncio.wrap_future(job)
        finally:
            if job is None or job.done():
                turn.release()
            else:
                # The caller hung up, and a thread cannot be stopped: its turn is not over.
                job.add_done_callback(lambda _: loop.call_soon_threadsafe(turn.release))


class NotKnownError(Exception):
    """Raised when a request's token is missing or nobody's; the text says how to get one."""

    def __init__(self) -> None:
        super().__init__(
            "the bearer token is missing or nobody's; get one with `sotto-serve token`, give it "
            "as Authorization: Bearer TOKEN"
        )


class TooOftenError(Exception):
    """Raised when a client asks too often; it may ask again after ``wait_s`` whole seconds."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = math.ceil(wait_s)
        super().__init__(f"this client asks too often; ask again in {self.wait_s} s")


async def desk_of(request: Request) -> Desk:
    """Return what the server works with."""
    desk: Desk = request.app.state.desk
    return desk


DeskOf = Annotated[Desk, Depends(desk_of)]


async def client_of(
    request: Request,
    desk: DeskOf,
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str:
    """Return the client whose token the request bears, if it may ask now.

    A question with a body was counted by the guard, before the body was read.

    Raises:
        NotKnownError: If the token is nobody's.
        TooOftenError: If the client asks too often.
        TooManyCallsError: If it has too much under way.
    """
    client = desk.client_of("" if given is None else given.credentials)
    if request.state.refusal is not None:
        raise request.state.refusal
    if not request.state.is_counted:
        desk.count_question(client)
    return client


ClientName = Annotated[str, Depends(client_of)]
