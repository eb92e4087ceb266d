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
        threads: The threads that run models.
        page: Files of the page, by address.
        is_closing: Whether the server is about to stop.
    """

    folder: ServingFolder
    shelf: Shelf[ServedModel]
    people: People
    tokens: KnownTokens
    rate_limit: RateLimit
    metrics: ServingMetrics
    threads: ThreadPoolExecutor
    voices: Voices
    page: Mapping[str, PageFile]
    is_closing: bool = False

    def client_of(self, token: str) -> str:
        """Return the client of a token, if it may ask now; this counts as asking.

        Raises:
            NotKnownError: If it is nobody's.
            TooOftenError: If the client asks too often.
        """
        client = self.tokens.client_of(token)
        if client is None:
            raise NotKnownError
        wait_s = self.rate_limit.wait_s(client)
        if wait_s > 0:
            raise TooOftenError(wait_s)
        return client

    async def on_thread(self, work: Callable[[], _Found]) -> _Found:
        """Do work on one of the threads where models run, and return what it gives."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)


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
    desk: DeskOf, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> str:
    """Return the client whose token the request bears, with the errors of ``Desk.client_of``."""
    return desk.client_of("" if given is None else given.credentials)


ClientName = Annotated[str, Depends(client_of)]
