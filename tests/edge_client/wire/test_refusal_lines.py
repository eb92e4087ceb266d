"""A refusal that leaves a device is a code and its fixed line, whatever the log says."""

import ast
import asyncio
from pathlib import Path
from typing import get_args

import pytest

import edge_client
from edge_client.agent.lease import HOPELESS_CODES
from edge_client.child.work import _FAILURES
from edge_client.jobs.job import TRAINING_DIED
from edge_client.owner.floor import FloorCode
from edge_client.wire.refusal_lines import LINES
from edge_client.wire.transport import Transport
from protos import federation_pb2 as wire


class _Stub:
    def __init__(self) -> None:
        self.refused: list[wire.RefusePlanRequest] = []

    async def RefusePlan(  # noqa: N802
        self, request: wire.RefusePlanRequest, timeout: float
    ) -> None:
        self.refused.append(request)


class NotingTransport(Transport):
    def __init__(self) -> None:  # No channel: one call is noted.
        self.stub = _Stub()
        self._stub = self.stub  # type: ignore[assignment]  # the one call that is made


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("floor_cohort", "floor_cohort"),
        ("update_not_finite", "update_not_finite"),
        # A code that a coordinator invented, or a later device, is no way to send words.
        ("/home/me/diary.txt", "plan_unusable"),
        ("unknown_code", "plan_unusable"),
    ],
)
def test_only_a_known_code_and_its_line_leave_the_device(code: str, told: str) -> None:
    transport = NotingTransport()

    asyncio.run(transport.refuse_plan(b"nonce", code))

    assert transport.stub.refused == [
        wire.RefusePlanRequest(lease_nonce=b"nonce", code=told, reason=LINES[told])
    ]


def test_every_code_that_a_device_refuses_with_has_a_line() -> None:
    codes = {*get_args(FloorCode), *map(str, _FAILURES.values()), TRAINING_DIED}
    codes |= {str(code) for code in HOPELESS_CODES} | set(_codes_of_refusals())

    # A model that does not open is answered by renewing certificates, not by a refusal.
    assert codes - {"unseal_failed"} == set(LINES)


def test_a_line_has_no_place_for_anything_of_the_device() -> None:
    for line in LINES.values():
        assert not set(line) & set("{}%/\\0123456789")


def _codes_of_refusals() -> list[str]:
    """Return the codes that the agent's sources name where they refuse a plan."""
    folder = Path(edge_client.__file__).parent / "agent"
    calls = (
        node
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "PlanRefusedError"
    )
    firsts = (call.args[0] for call in calls)
    return [str(first.value) for first in firsts if isinstance(first, ast.Constant)]
