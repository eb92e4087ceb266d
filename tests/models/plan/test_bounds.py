"""A hostile plan costs a device next to nothing; an honest one meets no bound."""

import json
import subprocess
import sys

import msgspec
import pytest

from models.plan.bounds import MOST_PLAN_BYTES
from models.plan.plan import PlanError, decode_plan
from tests.models.plan.mutated_plans import honest_plans


@pytest.mark.slow
def test_no_mutated_plan_takes_seconds_or_200_mb() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.models.plan.mutated_plans"],
        capture_output=True,
        check=True,
        timeout=60,
    )

    costs = json.loads(told.stdout)
    assert costs["refused"] > 1000
    assert costs["slowest_s"] < 5
    assert costs["grown_mb"] < 200


def test_an_honest_plan_reads_as_it_was_written() -> None:
    for plan in honest_plans():
        assert decode_plan(plan.encode()) == plan


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b'"local_epochs":1', b'"local_epochs":1001', "training.local_epochs must be <= 1000"),
        (b'"hidden_size":300', b'"hidden_size":65537', "model.hidden_size must be <= 65536"),
        (b'"hidden_size":300', b'"hidden_size":65536', "at most 268435456 elements"),
        (b'"batch_size":2', b'"batch_size":65536', "batch_size times bptt_steps must be <="),
        (b'"seed":1', b'"seed":' + b"9" * 5000, "cannot be read"),
    ],
)
def test_what_is_too_much_is_named(before: bytes, after: bytes, said: str) -> None:
    encoded = next(honest_plans()).encode()
    assert before in encoded

    with pytest.raises(PlanError, match=said):
        decode_plan(encoded.replace(before, after))


def test_a_plan_of_too_many_bytes_is_not_even_read() -> None:
    encoded = next(honest_plans()).encode()

    assert decode_plan(encoded.ljust(MOST_PLAN_BYTES)) == decode_plan(encoded)
    with pytest.raises(PlanError, match="at most 65536 bytes, got 65537"):
        decode_plan(encoded.ljust(MOST_PLAN_BYTES + 1))


def test_a_plan_of_an_earlier_coordinator_reads_without_a_quorum() -> None:
    plan = next(honest_plans())
    tables = msgspec.json.decode(plan.encode())
    del tables["quorum"]

    assert decode_plan(msgspec.json.encode(tables)) == msgspec.structs.replace(plan, quorum=None)
