"""Say which tensors of a model are everyone's and which are a person's own.

A personalisation method chooses a role for each tensor. What else it needs (a local objective, a
server half) is registered where that runs, under the same name; a method that only chooses roles
is one file with a ``RoleAssignment`` and one line here. No torch: the resting agent asks too.
"""

from collections.abc import Callable

from models.plan import PersonalisationSettings
from models.schema import Role, Schema

RoleAssignment = Callable[[Schema], Schema]
"""Return the same tensors in the same order, each with the role it has under the method."""


def all_shared(schema: Schema) -> Schema:
    """Leave every tensor ``shared``: one model for everyone."""
    return schema


METHODS: dict[str, RoleAssignment] = {"global": all_shared}


def assign_roles(settings: PersonalisationSettings, schema: Schema) -> Schema:
    """Return the schema with the roles that the method gives.

    Args:
        settings: Names the method.
        schema: A model's tensors, every one ``shared``.

    Raises:
        ValueError: If no method has this name.
    """
    if settings.method not in METHODS:
        raise ValueError(
            f"personalisation method must be one of {sorted(METHODS)}, got {settings.method!r}"
        )
    return METHODS[settings.method](schema)


def travelling_schema(settings: PersonalisationSettings, schema: Schema) -> Schema:
    """Return the tensors that travel between device and coordinator: the shared ones.

    Args:
        settings: Names the method.
        schema: A model's tensors, every one ``shared``.

    Raises:
        ValueError: If no method has this name, or it shares nothing.
    """
    return assign_roles(settings, schema).with_role(Role.SHARED)
