"""Choose the server half of the personalisation method.

A new method is one file with its ``ServerHalf`` and one line in ``_METHODS``.
"""

from collections.abc import Callable

from models.plan import PersonalisationSettings
from models.schema import Schema
from server.personalisation.global_model import GlobalModel
from server.personalisation.method import ServerHalf

_METHODS: dict[str, Callable[[Schema], ServerHalf]] = {
    "global": GlobalModel,
}


def build_server_half(settings: PersonalisationSettings, schema: Schema) -> ServerHalf:
    """Return the server half of the method that the settings name.

    Args:
        settings: Names the method.
        schema: The model's tensors with the roles the method gives them.

    Raises:
        ValueError: If there is no such method, or it does not fit the schema.
    """
    if settings.method not in _METHODS:
        raise ValueError(
            f"personalisation.method must be one of {sorted(_METHODS)}, got {settings.method!r}"
        )
    return _METHODS[settings.method](schema)
