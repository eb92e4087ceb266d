"""How far back a run's releases tell where its model has been going."""

import dataclasses
import logging
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from models.plan.plan import released_schema
from models.plan.release_record import PARAMETERS_FILE, PLAN_FILE
from models.settings.model import GruLmSettings, schema_of
from models.vector.schema import Schema
from server.releases.earlier_releases import earlier_parameters
from server.releases.files import NewRelease, ReleaseFolder

MakeRelease = Callable[[int, bytes], NewRelease]


@pytest.fixture
def schema(releases: ReleaseFolder, new_release: MakeRelease) -> Schema:
    """Release rounds 0 to 12, every parameter the round's number."""
    for number in range(13):
        releases.build(new_release(number, bytes(32)), None)
        releases.publish(number)
    return released_schema(new_release(0, bytes(32)).plan)


def seen(releases: ReleaseFolder, schema: Schema, round_number: int, back: int) -> float | None:
    """Return the round that was looked back to."""
    found = earlier_parameters(releases, schema, round_number, back)
    if found is None:
        return None
    assert found.shape == (schema.element_count,)
    (number,) = set(found.tolist())
    return float(number)


def test_the_oldest_release_within_reach_is_taken(releases: ReleaseFolder, schema: Schema) -> None:
    assert seen(releases, schema, 12, 9) == 3
    assert seen(releases, schema, 4, 9) == 0
    assert seen(releases, schema, 12, 1) == 11


def test_the_first_round_has_no_history_and_not_every_rule_asks(
    releases: ReleaseFolder, schema: Schema
) -> None:
    assert seen(releases, schema, 0, 9) is None
    assert seen(releases, schema, 12, 0) is None


def test_what_is_gone_or_damaged_is_passed_over_and_told(
    releases: ReleaseFolder, schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    releases.prune(range(5, 13))
    damaged = releases.path(5) / PARAMETERS_FILE
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x00")
    (releases.path(6) / PLAN_FILE).unlink()

    with caplog.at_level(logging.WARNING):
        assert seen(releases, schema, 12, 9) == 7

    for number in (5, 6):
        assert f"cannot look back to round {number}: " in caplog.text
    assert "round 4" not in caplog.text  # Too old to be kept: nothing is wrong.


def test_a_model_that_has_grown_is_not_compared_with_a_smaller_one(
    releases: ReleaseFolder, schema: Schema, new_release: MakeRelease
) -> None:
    larger = GruLmSettings(vocabulary_size=4, hidden_size=3)
    grown = schema_of(larger)
    new = new_release(13, bytes(32))
    plan = msgspec.structs.replace(new.plan, model=larger, schema_sha256=grown.sha256.hex())
    values = np.full(grown.element_count, 13, dtype=np.float32)
    releases.build(dataclasses.replace(new, plan=plan, parameters=values), None)
    releases.publish(13)

    assert seen(releases, grown, 13, 9) is None
    assert seen(releases, grown, 14, 9) == 13
    assert seen(releases, schema, 14, 9) == 5
