import asyncio
from unittest.mock import AsyncMock

import grpc
import pytest

import server.devices.refused_calls
from edge_client.wire.refusal import FAULT_CODES, RefusedError, UnreachableError, failure_of
from protos.refusals import RefusalCode


def failed(*trailing: tuple[str, str]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(*trailing),
        "the reason",
    )


def test_a_code_makes_a_failure_a_refusal() -> None:
    failure = failure_of(failed(("other", "x"), ("sotto-code", "late")))

    assert isinstance(failure, RefusedError)
    assert (failure.code, failure.reason) == ("late", "the reason")


def test_a_failure_without_a_code_is_the_networks() -> None:
    assert isinstance(failure_of(failed(("other", "x"))), UnreachableError)


@pytest.mark.parametrize(
    ("code", "fatal"), [("certificate_revoked", True), ("token_used", True), ("late", False)]
)
def test_only_what_a_person_must_mend_is_fatal(code: str, fatal: bool) -> None:
    assert RefusedError(code, "").is_fatal is fatal


@pytest.mark.parametrize("code", [code for code in RefusalCode if code not in FAULT_CODES])
def test_a_device_reads_each_code_that_the_coordinator_answers_with(code: RefusalCode) -> None:
    context = AsyncMock()

    async def answer() -> None:
        async with server.devices.refused_calls.answering(context):
            raise server.devices.refused_calls.RefusedError(code)

    asyncio.run(answer())
    failure = failure_of(failed(*context.abort.call_args.kwargs["trailing_metadata"]))

    assert isinstance(failure, RefusedError)
    assert failure.code == code


@pytest.mark.parametrize("code", ["too_slow", "coordinator_failed"])
def test_a_code_that_decides_nothing_is_tried_again_like_a_broken_connection(code: str) -> None:
    assert isinstance(failure_of(failed(("sotto-code", code))), UnreachableError)
