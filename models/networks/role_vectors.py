"""Take some tensors out of a flat vector, and put them back.

The part is a schema of some tensors of the whole, in any order, perhaps of none. Both functions
raise ``ValueError`` if a vector does not fit or the whole lacks a tensor of the part.
"""

import torch
from torch import Tensor

from models.networks.flat_parameters import check_flat
from models.vector.schema import Schema


def part_of(flat: Tensor, whole: Schema, part: Schema) -> Tensor:
    """Return a part's tensors as a flat vector of their own, a copy."""
    check_flat(flat, whole)
    taken = flat.new_empty(part.element_count)
    for name, where in part.slices.items():
        taken[where] = flat[_place(whole, name)]
    return taken


def put_part(flat: Tensor, whole: Schema, part: Schema, values: Tensor) -> None:
    """Write a part's tensors to their places in ``flat``, which holds the whole."""
    check_flat(flat, whole)
    check_flat(values, part)
    with torch.no_grad():
        for name, where in part.slices.items():
            flat[_place(whole, name)] = values[where]


def _place(whole: Schema, name: str) -> slice:
    if name not in whole.slices:
        raise ValueError(f"the whole must have a tensor {name}, it has none")
    return whole.slices[name]
