"""The memory that a pool shares with its workers: released parameters, and buffers for updates.

Every buffer row is aligned as new memory is: networks are trained where their update lies, and a
matrix product may round otherwise at another alignment.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from models.masked.layout import layout_if_masked
from models.plan.plan import Plan, released_schema, upload_schema
from models.vector.schema import BYTES_PER_ELEMENT, Role

GROUPS_PER_WORKER = 2
"""One being trained and one waiting in the pipe: a worker never idles while the pool adds."""

_BUFFERS_PER_WORKER = 8
_BUFFER_BYTES = 256 * 2**20
_ALIGNED_ELEMENTS = 16  # 64 bytes, which is how torch aligns.


class SharedTensors(NamedTuple):
    """The memory that the pool and its workers share.

    Attributes:
        parameters: The released parameters, flat float32, shape ``(elements,)``.
        generated: Each buffer's generated tensors, shape ``(buffers, generated elements)``.
        updates: Each buffer's update, shape ``(buffers, elements)``, in the layout of
            ``models.plan.plan.upload_schema``; in mode ``masked`` that of
            ``models.masked.layout``, whole numbers in the memory of floats.
    """

    parameters: Tensor
    generated: Tensor
    updates: Tensor


def share_tensors(plan: Plan, *, worker_count: int, together: int) -> SharedTensors:
    """Return zeroed memory with a buffer for each client under way, ``together`` ones a worker."""
    generated = upload_schema(plan).with_roles(Role.GENERATED)
    sent_count = _sent_count(plan)
    group_bytes = together * BYTES_PER_ELEMENT * (sent_count + generated.element_count)
    buffers = together * group_count(worker_count, group_bytes)
    return SharedTensors(
        _shared(released_schema(plan).element_count),
        _shared(buffers, generated.element_count),
        _shared(buffers, _aligned(sent_count))[:, :sent_count],
    )


def own_tensors(plan: Plan, buffers: int) -> SharedTensors:
    """Return zeroed memory of the same layout that one process keeps to itself."""
    generated = upload_schema(plan).with_roles(Role.GENERATED)
    sent_count = _sent_count(plan)
    return SharedTensors(
        torch.zeros(released_schema(plan).element_count),
        torch.zeros(buffers, generated.element_count),
        torch.zeros(buffers, _aligned(sent_count))[:, :sent_count],
    )


def sent_bytes(plan: Plan) -> int:
    """Return the size of one client's update in memory."""
    return _sent_count(plan) * BYTES_PER_ELEMENT


def _sent_count(plan: Plan) -> int:
    layout = layout_if_masked(plan)
    return (upload_schema(plan) if layout is None else layout).element_count


def _aligned(element_count: int) -> int:
    return math.ceil(element_count / _ALIGNED_ELEMENTS) * _ALIGNED_ELEMENTS


def group_count(worker_count: int, group_bytes: int) -> int:
    """Return how many groups may be under way: with more, small clients pass a slow large one."""
    affordable = _BUFFER_BYTES // (max(1, group_bytes) * worker_count)
    return worker_count * max(GROUPS_PER_WORKER, min(affordable, _BUFFERS_PER_WORKER))


def _shared(*shape: int) -> Tensor:
    # No memory can be shared that has no bytes: what is empty is cut from what is not.
    *rows, columns = shape
    zeros = torch.zeros(*rows, max(1, columns))
    zeros.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return zeros[..., :columns]
