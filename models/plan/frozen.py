"""Leave tensors as the run started: received with the model, never trained, sent or noised.

Fewer trained parameters need less noise: its length grows with the square root of their number,
while the clipping norm need only fit what is still trained. Freezing is useful if the run starts
from a model learnt on public text (``start_from``). No torch.
"""

from collections.abc import Collection

import msgspec

from models.settings.personalisation import GlobalSettings, PersonalisationSettings
from models.vector.schema import Role, Schema


def check_frozen(settings: PersonalisationSettings, schema: Schema, names: Collection[str]) -> None:
    """Check as ``freeze`` does, and that names are given to method ``global`` alone."""
    if names and not isinstance(settings, GlobalSettings):
        raise ValueError(
            f'training.frozen goes with personalisation.method = "global" alone, got '
            f'"{settings.method}"'
        )
    freeze(schema, names)


def freeze(schema: Schema, names: Collection[str]) -> Schema:
    """Return a model's schema with some tensors, or all tensors of some layers, ``frozen``.

    Raises:
        ValueError: If a name is neither, or nothing is left to train.
    """
    if not names:
        return schema
    wanted = set(names)
    known = {spec.name for spec in schema.tensors} | {spec.layer for spec in schema.tensors}
    unknown = sorted(wanted - known)
    if unknown:
        raise ValueError(f"training.frozen must be of {', '.join(sorted(known))}, got {unknown}")
    chosen = {spec.name for spec in schema.tensors if {spec.name, spec.layer} & wanted}
    if len(chosen) == len(schema.tensors):
        raise ValueError(f"training.frozen must leave a tensor to train, got {sorted(names)}")
    return Schema(
        tuple(
            msgspec.structs.replace(spec, role=Role.FROZEN) if spec.name in chosen else spec
            for spec in schema.tensors
        )
    )
