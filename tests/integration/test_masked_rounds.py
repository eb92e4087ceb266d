"""A coordinator, its helper and devices: sums come out, and nobody opens an update."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.masked_federation import MaskedFederation
from tests.integration.test_round import run_to_the_end

Make = Callable[..., MaskedFederation]


@pytest.fixture
def masked(tmp_path: Path) -> Iterator[Make]:
    """Return a function that founds federations of masked sums."""
    made: list[MaskedFederation] = []

    def make(**changes: object) -> MaskedFederation:
        made.append(MaskedFederation(tmp_path / f"m{len(made)}", **changes))
        return made[-1]

    yield make
    for federation in made:
        federation.stop()


def test_masked_rounds_release_what_the_same_vectors_sum_to_without_masks(masked: Make) -> None:
    federation = masked(cap=2, cohort=3, quorum=3)
    federation.helper.start()
    federation.start()
    devices = federation.enrol(3)

    run_to_the_end(federation)

    federation.stop()
    releases = federation.releases()
    assert [release.round_number for release in releases] == [1, 2]
    names = [device.name for device in devices]
    assert releases[-1].parameters_sha256.hex() == federation.expected_digest(names, 2)
    # Both sides hold the same two statements, signed by the helper.
    statements = [signed.statement for signed in federation.helper.answers()]
    assert [signed.statement for signed in federation.kept_answers()] == statements
    assert len(statements) == 2
