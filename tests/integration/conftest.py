"""Federations that are torn down whatever a test does to them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.federation import Federation, settings

Make = Callable[..., Federation]


@pytest.fixture
def make_federation(tmp_path: Path) -> Iterator[Make]:
    """Return a function that founds federations with changed settings."""
    made: list[Federation] = []

    def make(**changes: object) -> Federation:
        federation = Federation(tmp_path / f"f{len(made)}", settings(**changes))
        made.append(federation)
        return federation

    yield make
    for federation in made:
        federation.stop()
