"""The rotation against the matrix it stands for, and how evenly it spreads a vector."""

import math

import numpy as np
import pytest

from privacy.masking.rotation import rotate, rotate_back, rotation_block

# Whole blocks, an overlapping block, vectors below one block, and more than one block of 2^16.
COUNTS = [1, 2, 3, 8, 31, 32, 33, 100, 1000, 65_536, 65_537, 140_000]


def rotated(values: np.ndarray) -> np.ndarray:
    """Return a rotated copy."""
    result = values.astype(np.float64)
    rotate(result)
    return result


@pytest.mark.parametrize("count", COUNTS)
def test_rotating_keeps_the_norm_and_can_be_undone(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)

    turned = rotated(values)

    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(values), rel=1e-13)
    rotate_back(turned)
    assert np.allclose(turned, values, rtol=0, atol=1e-13)


@pytest.mark.parametrize("count", [2, 8, 13, 32, 33])
def test_the_rotation_is_an_orthogonal_matrix_of_equal_entries(count: int) -> None:
    matrix = np.array([rotated(row) for row in np.eye(count)])

    assert np.allclose(matrix @ matrix.T, np.eye(count), atol=1e-14)
    if count == rotation_block(count):
        assert np.allclose(np.abs(matrix), 1 / math.sqrt(count))


@pytest.mark.parametrize("count", [65_536, 100_000, 200_001])
def test_one_large_element_is_spread_over_its_block(count: int) -> None:
    for position in (0, count // 2, count - 1):
        values = np.zeros(count)
        values[position] = 1

        # +-1/256 where one block has it; in two blocks at most as a sum of 2^16 random signs.
        assert np.abs(rotated(values)).max() < 7 / 256


def test_sums_are_rotated_as_their_parts() -> None:
    first, second = np.random.default_rng(3).normal(size=(2, 5000))

    assert np.allclose(rotated(first) + rotated(second), rotated(first + second), atol=1e-12)
