"""Find the parts of a model that personalisation methods use: projections, head, batch norms.

A part is known by the names of its tensors, so that every family has it under the same rule and the
resting agent can tell roles without torch.
"""

import re
from enum import StrEnum

from models.vector.schema import Schema


class Part(StrEnum):
    """A part of a model."""

    PROJECTION = "projection"
    """Queries, keys and values of every attention; what FedTP generates."""
    HEAD = "head"
    """The last layer, weight and bias."""
    BATCH_NORM = "batch norm"
    """Batch norms, running statistics included."""
    SPEAKER = "speaker"
    """The vector that says who speaks: a client's own under every method."""


class MissingPartError(ValueError):
    """Raised when a method needs a part that the model does not have."""


_NAMES = {
    Part.PROJECTION: re.compile(r"(.*\.)?(to_qkv|to_q|to_k|to_v)\.weight"),
    Part.HEAD: re.compile(r"(head|output)\..+"),
    Part.BATCH_NORM: re.compile(
        r"(.*\.)?\w*batch_norm\d*\.(weight|bias|running_mean|running_var|batch_count)"
    ),
    Part.SPEAKER: re.compile(r"speaker\.vector"),
}
_REMEDIES = {
    Part.PROJECTION: "choose a model with attention",
    Part.HEAD: "choose a model with a head of its own",
    Part.BATCH_NORM: 'choose a convnet with batch_norm = true, or a voice with norm = "batch"',
    Part.SPEAKER: "set speaker_size",
}
_TIED_HEAD = ("output.bias",)


def belongs(name: str, part: Part) -> bool:
    """Return whether a tensor of this name belongs to the part."""
    return _NAMES[part].fullmatch(name) is not None


def is_statistic(name: str) -> bool:
    """Return whether a tensor of this name is counted by a batch norm, and follows no gradient."""
    return belongs(name, Part.BATCH_NORM) and not name.endswith((".weight", ".bias"))


def part_names(schema: Schema, part: Part, *, method: str) -> tuple[str, ...]:
    """Return the names of a part's tensors, in schema order, at least one.

    Raises:
        MissingPartError: If the model lacks the part, or its head is a bias alone because the
            embedding's matrix is its weight; names the method.
    """
    names = tuple(spec.name for spec in schema.tensors if belongs(spec.name, part))
    if not names:
        raise MissingPartError(
            f'method "{method}" needs a model with a {part}, this one has none; {_REMEDIES[part]}'
        )
    if names == _TIED_HEAD:
        raise MissingPartError(
            f'method "{method}" needs a model with a {part}, and that of a tied model is a bias '
            "alone; set tied = false"
        )
    return names
