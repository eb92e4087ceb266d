"""A personalisation method of one's own: each person keeps the last layer. No torch."""

from collections.abc import Iterable

import msgspec

from models.vector.schema import Schema


class OwnOutput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is spam differs from person to person: the output layer stays on the device."""

    def personal_names(self, schema: Schema) -> Iterable[str]:
        """Return the names of the output layer's tensors."""
        return (spec.name for spec in schema.tensors if spec.layer == "output")
