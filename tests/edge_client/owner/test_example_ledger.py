"""What was spent survives, is the owner's alone, and is never guessed."""

from pathlib import Path

import pytest

from edge_client.owner.example_ledger import (
    ExampleLedgerError,
    ExampleSpending,
    read_spending,
    write_spending,
)
from privacy.example_level.settings import ExampleEvent

SPENT = ExampleSpending(
    events=(ExampleEvent(noise_multiplier=1.0, sampling_rate=0.1, step_count=20),),
    round_count=2,
    epsilon=1.5,
    delta=1e-5,
)


def test_what_was_spent_comes_back_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "example_privacy.json"

    write_spending(path, SPENT)

    assert read_spending(path) == SPENT
    assert path.stat().st_mode & 0o077 == 0


def test_a_device_that_never_spent_has_spent_nothing(tmp_path: Path) -> None:
    assert read_spending(tmp_path / "none").round_count == 0


@pytest.mark.parametrize("damage", [b"", b"{}x", b'{"events": [], "rounds": 1}', b"\xff\xfe"])
def test_a_damaged_file_is_an_error_and_not_a_fresh_start(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "example_privacy.json"
    path.write_bytes(damage)

    with pytest.raises(ExampleLedgerError, match="what this device's text has spent is unknown"):
        read_spending(path)
