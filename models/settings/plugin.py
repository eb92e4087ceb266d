"""Settings of parts that plugins have: a name, and a table that the plugin's own struct reads.

The table stays as it was written until the plugin is asked, so a file or a plan can be decoded
before anybody looks at which plugins it names. No torch.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from models.plugins.loaded import part_of
from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.family import Family
from models.vector.schema import Role, Schema
from privacy.foundation.decoding_errors import explained


class ModelPart(Protocol):
    """A plugin's struct of settings in ``sotto.models``."""

    def schema(self) -> Schema:
        """Return the tensors of the network in state-dict order, every one ``shared``."""
        ...


class MethodPart(Protocol):
    """A plugin's struct of settings in ``sotto.personalisation``."""

    def personal_names(self, schema: Schema) -> Iterable[str]:
        """Return the names of the tensors that a person keeps; all others are everybody's."""
        ...


# Any: a table's values are those of the plugin's own fields.
def own_settings(part: Part, name: str, table: dict[str, Any]) -> Any:
    """Return a table as the plugin's own struct, decoded strictly.

    Raises:
        PluginError: If no loaded plugin has the part, or the table is not of its settings.
    """
    kind = part_of(part, name)
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        raise PluginError(f"settings of {name}: {explained(error, table, kind)}") from None
    except ValueError as error:
        raise PluginError(f"settings of {name}: {error}") from None
    except Exception as error:
        raise broken_part(part, name, error) from error


class PluginModel(Family, frozen=True, kw_only=True, tag="plugin"):
    """A family of networks that a plugin has in ``sotto.models`` and ``sotto.networks``.

    Attributes:
        name: The family's name in the plugin.
        settings: Its settings, as the plugin's own struct has them.
    """

    name: str
    settings: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def family_name(self) -> str:
        """Return the family's name in the plugin."""
        return self.name

    @property
    def own(self) -> ModelPart:
        """Return the settings as the plugin's own struct; PluginError if they are not."""
        settings: ModelPart = own_settings(Part.MODELS, self.name, self.settings)
        return settings

    def schema(self) -> Schema:
        """Return the tensors of the network in state-dict order, every one ``shared``.

        Raises:
            PluginError: If no loaded plugin has the family, or what it has is broken.
        """
        own = self.own
        with plugin_speaks(Part.MODELS, self.name):
            schema = own.schema()
        if not isinstance(schema, Schema) or any(
            spec.role is not Role.SHARED for spec in schema.tensors
        ):
            raise PluginError(
                f"{self.name} of {Part.MODELS} must have a schema of shared tensors, got "
                f"{type(schema).__name__}"
            )
        return schema


@contextmanager
def plugin_speaks(part: Part, name: str) -> Iterator[None]:
    """Run a plugin's own code: whatever it raises becomes a PluginError of one line."""
    try:
        yield
    # Somebody else's code, perhaps with numbers that a coordinator chose.
    except Exception as error:
        raise broken_part(part, name, error) from error


def broken_part(part: Part, name: str, error: Exception) -> PluginError:
    """Return the error of a plugin's part that raised one of its own."""
    return PluginError(f"{name} of {part} raised {type(error).__name__}: {error}")
