"""Choose the server half of the personalisation method.

Most methods need none: what they share goes through the aggregation rule. One that generates
tensors is one file with its ``ServerHalf`` and one case here.
"""

from models.personalisation_settings import PersonalisationSettings
from models.schema import Role, Schema
from server.personalisation.method import ServerHalf
from server.personalisation.nothing_generated import NothingGenerated


def build_server_half(settings: PersonalisationSettings, schema: Schema) -> ServerHalf:
    """Return the server half of a method.

    Args:
        settings: The method.
        schema: The tensors that travel, with the roles the method gives them.

    Raises:
        ValueError: If the method generates tensors and nothing here makes them.
    """
    if schema.with_roles(Role.GENERATED).tensors:
        raise ValueError(
            f'method "{settings.method}" generates tensors, and no server half makes them'
        )
    return NothingGenerated(schema)
