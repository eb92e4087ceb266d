import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.federation import Federation, settings
from tests.integration.test_growing_rounds import GROWTH, TWO_LAYERS


def first_lines(root: Path, count: int) -> list[str]:
    command = [sys.executable, "-P", "-c", "import sys; from server.entry import main; main()"]
    with subprocess.Popen([*command, "run", str(root)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        lines = [run.stdout.readline() for _ in range(count)]
        run.terminate()
    return lines


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Federation, list[str]]:
    """Return a federation that grows, without noise, and what its coordinator says first."""
    text = settings(model=TWO_LAYERS, tables=GROWTH.format(rounds=2))
    federation = Federation(tmp_path_factory.mktemp("told") / "f", text)
    return federation, first_lines(federation.root, 3)


def test_a_coordinator_says_at_its_start_what_its_noise_promises(
    growing: tuple[Federation, list[str]],
) -> None:
    _, lines = growing

    assert "devices on port" in lines[0]
    assert lines[1] == "privacy: none: no noise, no privacy guarantee\n"


def test_a_coordinator_says_at_its_start_what_growth_saves(
    growing: tuple[Federation, list[str]],
) -> None:
    federation, (*_, told) = growing

    assert told.startswith("growth: 2 layers in 2 stages over 2 rounds; a device in all of them ")
    assert told == f"growth: {federation.config.growth_told}\n"
