"""A device looks at a plan before it fetches a byte."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_client.acceptance import PlanRefusedError, accept_plan
from edge_client.traffic import Traffic
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import FLOOR, PAYLOAD_BYTES, make_lease, shipped_plan


@pytest.fixture
def traffic(tmp_path: Path) -> Traffic:
    return Traffic(tmp_path / "traffic.json", clock=lambda: 0.0)


def older(version: int) -> bytes:
    fields = msgspec.json.decode(shipped_plan().encode()) | {"version": version}
    return msgspec.json.encode(fields)


def without(key: str) -> bytes:
    fields: dict[str, Any] = msgspec.json.decode(shipped_plan().encode())
    del fields[key]
    return msgspec.json.encode(fields)


def test_a_plan_that_the_device_understands_is_accepted(traffic: Traffic) -> None:
    assert accept_plan(make_lease(), FLOOR, traffic) == shipped_plan()


@pytest.mark.parametrize(
    ("lease", "code", "said"),
    [
        (make_lease(b"{"), "plan_unreadable", "cannot be read"),
        (make_lease(without("privacy")), "plan_unreadable", "privacy"),
        (make_lease(older(0)), "plan_unreadable", "the coordinator is older"),
        (make_lease(older(99)), "plan_unreadable", "this device is older"),
        (make_lease(shipped_plan(schema_sha256="00" * 32)), "schema_mismatch", "update the older"),
        (make_lease(shipped_plan(cohort_size=0)), "floor_cohort", "cohort"),
        (make_lease(download_bytes=2 * PAYLOAD_BYTES + (1 << 16)), "wrong_size", "at most"),
        (make_lease(upload_bytes=2 * PAYLOAD_BYTES + (1 << 16)), "wrong_size", "at most"),
    ],
)
def test_a_plan_is_refused_with_a_code_and_a_reason(
    traffic: Traffic, lease: wire.Lease, code: str, said: str
) -> None:
    with pytest.raises(PlanRefusedError, match=said) as refused:
        accept_plan(lease, FLOOR, traffic)

    assert refused.value.code == code


def test_a_round_that_moves_more_than_is_left_today_is_refused(traffic: Traffic) -> None:
    floor = msgspec.structs.replace(FLOOR, bytes_a_day=100)
    traffic.add(bytes_down=50)

    accept_plan(make_lease(download_bytes=30, upload_bytes=20), floor, traffic)
    with pytest.raises(PlanRefusedError, match="moves 51 bytes and 50 are left") as refused:
        accept_plan(make_lease(download_bytes=30, upload_bytes=21), floor, traffic)

    assert refused.value.code == "bytes_a_day"
