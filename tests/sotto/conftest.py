"""One small run, made through the door, and the folder where it lies."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import sotto

SMALL: dict[str, Any] = {  # TOML values.
    "rounds": {"cap": 2},
    "vocabulary": {"size": 50},
    "model": {"vocabulary_size": 50, "hidden_size": 8},
    "data": {"client_count": 60},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> sotto.Run:
    folder = tmp_path_factory.mktemp("door") / "run"
    return sotto.simulate("keyboard-tiny", out=folder, **SMALL)
