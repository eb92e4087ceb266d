from collections.abc import Callable
from typing import Any

import pytest

from simulation.config.simulation import SimulationConfig


@pytest.fixture
def tables(configured: Callable[..., tuple[SimulationConfig, dict[str, Any]]]) -> dict[str, Any]:
    return configured()[1]
