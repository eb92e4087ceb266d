"""A device looks at a plan before it fetches a byte."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge_client.agent.acceptance import PlanRefusedError, accept_plan
from edge_client.owner.traffic import Traffic
from models.plan.roles import assign_roles
from models.settings.compression import CompressionSettings
from models.settings.model import TransformerLmSettings, schema_of
from models.settings.personalisation import FedTpSettings
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import FLOOR, PAYLOAD_BYTES, make_lease, shipped_plan

FLOAT16 = CompressionSettings(uplink="float16")


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


def other_schema(coordinator: str) -> wire.Lease:
    """Return a lease of a coordinator that builds the model with other tensors."""
    lease = make_lease(shipped_plan(schema_sha256="00" * 32))
    lease.software_version = coordinator
    return lease


def test_a_plan_that_the_device_understands_is_accepted(traffic: Traffic) -> None:
    assert accept_plan(make_lease(), FLOOR, traffic) == shipped_plan()


@pytest.mark.parametrize(
    ("lease", "code", "said"),
    [
        (make_lease(b"{"), "plan_unreadable", "cannot be read"),
        (make_lease(without("privacy")), "plan_unreadable", "privacy"),
        (make_lease(shipped_plan(compression=FLOAT16)), "plan_unreadable", 'use .*"bfloat16"'),
        (make_lease(older(0)), "plan_unreadable", "the coordinator is older"),
        (make_lease(older(99)), "plan_unreadable", "this device is older"),
        (other_schema("99.0"), "schema_mismatch", r"runs sotto 99\.0 .* this device is older"),
        (
            other_schema("0.0.1"),
            "schema_mismatch",
            r"runs sotto 0\.0\.1 .* the coordinator is older",
        ),
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


def personal_lease(generated_bytes: int) -> wire.Lease:
    """Return a lease whose plan generates 48 numbers: projections of 3 · 4 rows and 4 columns."""
    model = TransformerLmSettings(
        vocabulary_size=20, model_size=4, head_count=1, layer_count=1, feedforward_size=4
    )
    roles = assign_roles(FedTpSettings(), schema_of(model))
    plan = shipped_plan(
        model=model, personalisation=FedTpSettings(), schema_sha256=roles.sha256.hex()
    )
    lease = make_lease(plan)
    lease.generated_bytes = generated_bytes
    return lease


def test_a_part_generated_for_the_device_must_be_there_exactly_where_the_plan_has_one(
    traffic: Traffic,
) -> None:
    floor = msgspec.structs.replace(FLOOR, model_families=frozenset({"transformer_lm", "gru_lm"}))
    unasked = make_lease()
    unasked.generated_bytes = 1

    assert accept_plan(personal_lease(48 * 4), floor, traffic).personalisation == FedTpSettings()
    for lease in (personal_lease(0), personal_lease(48 * 4 + (1 << 17)), unasked):
        with pytest.raises(PlanRefusedError) as refused:
            accept_plan(lease, floor, traffic)
        assert refused.value.code == "wrong_size"


def test_a_fit_comes_with_the_hypernetwork_and_with_nothing_generated(traffic: Traffic) -> None:
    floor = msgspec.structs.replace(FLOOR, model_families=frozenset({"transformer_lm"}))
    trained = personal_lease(48 * 4)
    fields = msgspec.json.decode(trained.plan) | {"kind": "fit_embedding", "embedding_fit": {}}
    fit = personal_lease(0)
    fit.plan = msgspec.json.encode(fields)
    fit.hypernetwork_bytes = 1000

    assert accept_plan(fit, floor, traffic).kind == "fit_embedding"
    for name, size in (("hypernetwork_bytes", 0), ("generated_bytes", 48 * 4)):
        wrong = personal_lease(0)
        wrong.CopyFrom(fit)
        setattr(wrong, name, size)
        with pytest.raises(PlanRefusedError) as refused:
            accept_plan(wrong, floor, traffic)
        assert refused.value.code == "wrong_size"


def test_what_is_generated_counts_as_traffic(traffic: Traffic) -> None:
    floor = msgspec.structs.replace(
        FLOOR, model_families=frozenset({"transformer_lm"}), bytes_a_day=200
    )
    lease = personal_lease(190)

    with pytest.raises(PlanRefusedError, match="moves 215 bytes and 200 are left"):
        accept_plan(lease, floor, traffic)
