"""An unforeseen error gets one fixed line; the log has its place and no text."""

import asyncio
import errno
import logging
from unittest.mock import AsyncMock

import grpc
import pytest

from protos.refusals import CODE_KEY, RefusalCode
from server.devices.refused_calls import answering

SECRET = "/srv/federation/uploads/0123.part"


def answer_to(error: Exception) -> AsyncMock:
    """Raise an error while a call is answered and return what ended the call."""
    context = AsyncMock()

    async def call() -> None:
        async with answering(context):
            raise error

    asyncio.run(call())
    ended: AsyncMock = context.abort
    return ended


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "Permission denied", SECRET), ValueError(SECRET), KeyError("x")]
)
def test_a_failure_is_told_in_one_line_without_its_text(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        ended = answer_to(error)

    ended.assert_awaited_once_with(
        grpc.StatusCode.INTERNAL,
        "the coordinator failed; its log says where",
        trailing_metadata=((CODE_KEY, "coordinator_failed"),),
    )
    (line,) = caplog.messages
    assert type(error).__name__ in line
    assert "test_refused_calls.py:" in line
    assert SECRET not in line


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, RefusalCode.DISK_FULL),
        (errno.EMFILE, RefusalCode.RATE_LIMITED),
        (errno.ENFILE, RefusalCode.RATE_LIMITED),
    ],
)
def test_a_shortage_asks_the_device_to_come_again(number: int, code: RefusalCode) -> None:
    ended = answer_to(OSError(number, "no", SECRET))

    assert ended.await_args is not None
    assert ended.await_args.kwargs["trailing_metadata"] == ((CODE_KEY, code),)
    assert SECRET not in ended.await_args.args[1]


def test_an_answer_that_was_given_already_stays() -> None:
    with pytest.raises(grpc.aio.AbortError):
        answer_to(grpc.aio.AbortError())
