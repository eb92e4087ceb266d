"""A hypernetwork's learnt state, as named tensors that are checked before they are used.

The server writes them with each release, and the export of a person's model reads them. A tensor of
digits identifies model and hypernetwork, so the state of another one is refused.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from models.personal.hypernetwork import Hypernetwork
from models.settings.hypernetwork import HypernetworkSettings, hypernetwork_schema
from models.vector.schema import Schema

_DIGEST, _PHI, _VELOCITY = "schema_sha256", "phi", "velocity"
_CLIENT = "client/"


class UnknownClientError(LookupError):
    """Raised when the model is asked for of a client that never took part."""


@dataclass(frozen=True)
class Row:
    """One client's place in the table of embeddings.

    Attributes:
        embedding: z_i, float32, shape ``(embedding_size,)``.
        velocity: Its momentum, same shape.
    """

    embedding: Tensor
    velocity: Tensor


@dataclass(frozen=True)
class HypernetworkState:
    """The parameters φ, their momentum, and a row for each client that took part.

    Attributes:
        phi: Flat float32, shape ``(elements of φ,)``.
        velocity: Its momentum, same shape.
        rows: By client name.
    """

    phi: Tensor
    velocity: Tensor
    rows: dict[str, Row] = field(default_factory=dict)

    def to_tensors(self, settings: HypernetworkSettings, generated: Schema) -> dict[str, Tensor]:
        """Return copies by name: the digest, φ and its momentum, then clients in order of name."""
        tensors = {
            _DIGEST: _digest(settings, generated),
            _PHI: self.phi.clone(),
            _VELOCITY: self.velocity.clone(),
        }
        for name, row in sorted(self.rows.items()):
            tensors[_CLIENT + name] = torch.stack([row.embedding, row.velocity])
        return tensors

    def row(self, client_name: str) -> Row:
        """Return a client's row; raise ``UnknownClientError`` if it has none."""
        if client_name not in self.rows:
            raise UnknownClientError(
                f'no embedding is known of client "{client_name}"; it has one after its first '
                "round, and a new client fits its own on its device"
            )
        return self.rows[client_name]


def state_of_tensors(
    tensors: Mapping[str, Tensor], settings: HypernetworkSettings, generated: Schema
) -> HypernetworkState:
    """Return the state that ``to_tensors`` wrote for these settings and this schema.

    Raises:
        ValueError: If it belongs to another model or hypernetwork, or a tensor is missing, unknown,
            not finite, or of another shape or dtype.
    """
    rest = dict(tensors)
    _check_digest(rest.pop(_DIGEST, None), _digest(settings, generated))
    shape = (hypernetwork_schema(settings, generated).element_count,)
    phi, velocity = (_checked(name, rest.pop(name, None), shape) for name in (_PHI, _VELOCITY))
    rows: dict[str, Row] = {}
    for name, tensor in rest.items():
        client = name.removeprefix(_CLIENT)
        if not name.startswith(_CLIENT) or not client:
            raise ValueError(f"the hypernetwork's state must have no tensor {name!r}, it has one")
        row = _checked(name, tensor, (2, settings.embedding_size))
        rows[client] = Row(row[0].clone(), row[1].clone())
    return HypernetworkState(phi.clone(), velocity.clone(), rows)


def generated_for(
    client_name: str,
    state: HypernetworkState,
    settings: HypernetworkSettings,
    generated: Schema,
) -> Tensor:
    """Return the tensors, flat, of a client that took part, or raise ``UnknownClientError``."""
    hypernetwork = Hypernetwork(settings, generated)
    hypernetwork.phi = state.phi
    return hypernetwork.generate(state.row(client_name).embedding)


def _digest(settings: HypernetworkSettings, generated: Schema) -> Tensor:
    own = hypernetwork_schema(settings, generated)
    # Its tensors are the same with the option, and mean something else.
    option = b"spectral norm" if settings.spectral_norm else b""
    return torch.tensor(list(hashlib.sha256(own.sha256 + generated.sha256 + option).digest()))


def _check_digest(found: Tensor | None, expected: Tensor) -> None:
    if found is None or found.dtype != expected.dtype or not torch.equal(found, expected):
        raise ValueError(
            "the hypernetwork's state belongs to another model or another hypernetwork; set model "
            "and personalisation as they were, or begin a new run"
        )


def _checked(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    if tensor is None:
        raise ValueError(f"the hypernetwork's state must have a tensor {name!r}, it has none")
    if tensor.shape != shape or tensor.dtype is not torch.float32:
        raise ValueError(
            f"{name} must be float32 of shape {shape}, "
            f"got {tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name} must be finite, it holds NaN or infinity")
    return tensor
