import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from export.graphs.eight_bits import BLOCK, rounded


def test_a_block_is_measured_by_its_largest_value() -> None:
    # s = 12.7 / 127 = 0.1, so 0.26 becomes 3 tenths; the second block has s = 0.01.
    matrix = np.zeros((1, 66), dtype=np.float32)
    matrix[0, :3] = [12.7, 0.26, -12.7]
    matrix[0, 64:] = [1.27, -0.014]

    made = rounded(matrix)

    assert made.whole.shape == (1, 2, 64)
    np.testing.assert_allclose(made.scales, [[0.1, 0.01]], rtol=1e-6)
    assert made.whole[0, 0, :3].tolist() == [127, 3, -127]
    assert made.whole[0, 1, :3].tolist() == [127, -1, 0]
    np.testing.assert_allclose(made.matrix()[0, [1, 65]], [0.3, -0.01], rtol=1e-6)


def test_zeros_stay_zeros() -> None:
    assert_array_equal(rounded(np.zeros((3, 5), dtype=np.float32)).matrix(), np.zeros((3, 5)))


@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 3 * BLOCK),
    magnitude=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_value_moves_by_more_than_half_a_step(
    rows: int, columns: int, magnitude: float, seed: int
) -> None:
    draw = np.random.default_rng(seed).standard_normal((rows, columns))
    matrix = (magnitude * draw).astype(np.float32)

    made = rounded(matrix)

    steps = np.repeat(made.scales, BLOCK, axis=1)[:, :columns]
    assert made.matrix().shape == matrix.shape
    assert (np.abs(made.matrix() - matrix) <= 0.5001 * steps).all()
