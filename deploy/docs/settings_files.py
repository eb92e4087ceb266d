"""The files of settings, each with its program, as the programs' `schema` commands know them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge_client.owner.floor import Floor
from edge_client.owner.settings import ClientSettings
from export.serve.folder.settings import ServeSettings
from privacy.foundation.toml_schema import Schema, toml_schema
from server.config.federation import FederationConfig
from server.helper.settings import HelperSettings
from simulation.config.file_schema import file_schema
from simulation.config.simulation import SimulationConfig


@dataclass(frozen=True, kw_only=True)
class SettingsFile:
    """One TOML file of settings.

    Attributes:
        name: What it is called, or what it is.
        page: Name of its page.
        command: What prints its schema.
        schema: Makes its schema.
        note: What else its page has to say.
    """

    name: str
    page: str
    command: str
    schema: Callable[[], Schema]
    note: str = ""


def _simulation() -> Schema:
    """Return the schema of a simulation that extends nothing, with the setting that extends."""
    schema = toml_schema(SimulationConfig, "a simulation's file")
    name = SimulationConfig.__name__
    extends = file_schema()["$defs"][name]["properties"]["extends"]
    whole = schema["$defs"][name]
    whole["properties"] = {"extends": {**extends, "default": None}, **whole["properties"]}
    return schema


FILES: Sequence[SettingsFile] = (
    SettingsFile(
        name="federation.toml",
        page="federation",
        command="sotto-server schema",
        schema=lambda: toml_schema(FederationConfig, "federation.toml"),
        note="It lies in the coordinator's folder; `sotto-server init` writes it from a preset.",
    ),
    SettingsFile(
        name="floor.toml",
        page="floor",
        command="sotto-client schema floor.toml",
        schema=lambda: toml_schema(Floor, "floor.toml"),
        note="It lies in a device's folder and belongs to its owner.",
    ),
    SettingsFile(
        name="client.toml",
        page="client",
        command="sotto-client schema client.toml",
        schema=lambda: toml_schema(ClientSettings, "client.toml"),
        note="It lies in a device's folder and belongs to its owner.",
    ),
    SettingsFile(
        name="helper.toml",
        page="helper",
        command="sotto-helper schema",
        schema=lambda: toml_schema(HelperSettings, "helper.toml"),
        note="It lies in a helper's folder.",
    ),
    SettingsFile(
        name="serve.toml",
        page="serve",
        command="sotto-serve schema",
        schema=lambda: toml_schema(ServeSettings, "serve.toml"),
        note="It lies in the folder of a server of exported models.",
    ),
    SettingsFile(
        name="A simulation's file",
        page="simulation",
        command="sotto-simulate schema",
        schema=_simulation,
        note="A file that `extends` a preset needs none of them: what it leaves out is the "
        "preset's. Without `extends`, it needs those that are required.",
    ),
)
