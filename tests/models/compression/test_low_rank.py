"""Factors of large tensors against linear algebra."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from models.compression.half_precision import Float32
from models.compression.low_rank import LowRankCoder
from models.compression.value_coder import Draws
from models.vector.codec import FlatVector
from models.vector.schema import Schema, TensorSpec

ROWS, COLUMNS = 40, 30
SCHEMA = Schema(
    (
        TensorSpec(name="bias", shape=(7,), layer="bias"),
        TensorSpec(name="weight", shape=(ROWS, 5, 6), layer="weight"),
        TensorSpec(name="small", shape=(2, 2), layer="small"),
    )
)
MATRIX = SCHEMA.slices["weight"]


def there_and_back(values: FlatVector, rank: int, seed: int = 1) -> FlatVector:
    coder = LowRankCoder(SCHEMA, rank, Float32())
    memory = memoryview(bytearray(coder.byte_count(values.size)))
    coder.encode(values, memory, Draws(seed))
    found = np.full(values.size, np.nan, np.float32)
    coder.decode(memory, found)
    return found


def with_matrix(matrix: FlatVector) -> FlatVector:
    values = np.arange(SCHEMA.element_count, dtype=np.float32)
    values[MATRIX] = matrix.reshape(-1)
    return values


def random_matrix(rank: int) -> FlatVector:
    draws = np.random.default_rng(0)
    matrix = draws.standard_normal((ROWS, rank)) @ draws.standard_normal((rank, COLUMNS))
    return matrix.astype(np.float32)


@pytest.mark.parametrize(("true_rank", "sent_rank"), [(1, 1), (3, 3), (3, 5), (0, 2)])
def test_a_matrix_of_low_rank_arrives(true_rank: int, sent_rank: int) -> None:
    values = with_matrix(random_matrix(true_rank))

    np.testing.assert_allclose(there_and_back(values, sent_rank), values, atol=2e-5)


def test_what_would_not_get_smaller_travels_as_it_is() -> None:
    # 7 x 1 and 2 x 2 are no longer than their factors; 40 x 30 is longer up to rank 17.
    sizes = [LowRankCoder(SCHEMA, rank, Float32()).byte_count(1211) for rank in (1, 17, 18)]
    values = with_matrix(random_matrix(30))

    assert sizes == [4 * (7 + 70 * 1 + 4), 4 * (7 + 70 * 17 + 4), 4 * 1211]
    assert (there_and_back(values, 18) == values).all()
    kept = np.delete(np.arange(1211), np.arange(1211)[MATRIX])
    assert (there_and_back(values, 1)[kept] == values[kept]).all()


def test_what_arrives_is_the_projection_on_what_was_spanned() -> None:
    matrix = random_matrix(30)

    found = there_and_back(with_matrix(matrix), 4)[MATRIX].reshape(ROWS, COLUMNS)

    # A projection leaves nothing of itself, and no more than the matrix.
    assert np.linalg.matrix_rank(found, tol=1e-3) == 4
    np.testing.assert_allclose((found * (matrix - found)).sum(), 0, atol=1e-2)
    best = np.linalg.svd(matrix)[1][4:]
    lost = float(np.linalg.norm(matrix - found))
    assert float(np.linalg.norm(best)) <= lost < float(np.linalg.norm(matrix))


def test_another_round_spans_something_else() -> None:
    values = with_matrix(random_matrix(30))

    assert (there_and_back(values, 2, 1) == there_and_back(values, 2, 1)).all()
    assert (there_and_back(values, 2, 1) != there_and_back(values, 2, 2)).any()


@given(
    numpy_st.arrays(np.float32, 1211, elements=st.floats(-1e4, 1e4, width=32), fill=st.just(0.0)),
    st.integers(1, 6),
)
def test_no_more_is_lost_than_there_was(values: FlatVector, rank: int) -> None:
    lost = (values - there_and_back(values, rank)).astype(np.float64)

    whole = float(np.linalg.norm(values.astype(np.float64)))
    assert float(np.linalg.norm(lost)) <= whole * (1 + 1e-5)
    assert not lost[: MATRIX.start].any()


def test_an_update_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="updates have 1211 values, got 1210"):
        LowRankCoder(SCHEMA, 2, Float32()).byte_count(1210)
