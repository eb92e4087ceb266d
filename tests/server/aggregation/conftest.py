from collections.abc import Iterator

import pytest
import torch

from models.vector.schema import Schema, TensorSpec


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def schema() -> Schema:
    """Two layers, the first of a matrix and a vector, the second of a vector: 12 + 4 + 5."""
    return Schema(
        (
            TensorSpec(name="first.weight", shape=(3, 4), layer="first"),
            TensorSpec(name="first.bias", shape=(4,), layer="first"),
            TensorSpec(name="second.bias", shape=(5,), layer="second"),
        )
    )
