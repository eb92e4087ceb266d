import pytest
import torch

from models.networks.role_vectors import part_of, put_part
from models.vector.schema import Schema, TensorSpec

A = TensorSpec(name="a", shape=(2,), layer="a")
B = TensorSpec(name="b", shape=(1, 3), layer="b")
C = TensorSpec(name="c", shape=(1,), layer="c")
WHOLE = Schema((A, B, C))
FLAT = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def test_a_part_is_taken_out_in_its_own_order() -> None:
    assert part_of(FLAT, WHOLE, Schema((A, C))).tolist() == [1, 2, 6]
    assert part_of(FLAT, WHOLE, Schema((C, A))).tolist() == [6, 1, 2]
    assert part_of(FLAT, WHOLE, Schema(())).shape == (0,)


def test_parts_put_back_make_the_whole() -> None:
    parts = [Schema((A, C)), Schema((B,)), Schema(())]
    rebuilt = torch.zeros(6)

    for part in parts:
        put_part(rebuilt, WHOLE, part, part_of(FLAT, WHOLE, part))

    assert torch.equal(rebuilt, FLAT)


def test_what_does_not_fit_is_refused() -> None:
    other = Schema((TensorSpec(name="d", shape=(1,), layer="d"),))
    with pytest.raises(ValueError, match="must have a tensor d, it has none"):
        part_of(FLAT, WHOLE, other)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        put_part(FLAT.clone(), WHOLE, Schema((A, C)), torch.zeros(2))
