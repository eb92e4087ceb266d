"""The JSON schema of a file that ``sotto-simulate run`` takes in a preset's place."""

from collections.abc import Iterator

from privacy.foundation.toml_schema import Schema, toml_schema
from simulation.config.simulation import SimulationConfig, preset_names

_EXTENDS = {
    "enum": sorted(preset_names()),
    "description": "Preset that has every setting which this file does not change.",
}


def file_schema() -> Schema:
    """Return it; nothing is required, as a file may change one setting of a preset's."""
    schema = toml_schema(SimulationConfig, "a file to simulate")
    schema["$defs"][SimulationConfig.__name__]["properties"]["extends"] = _EXTENDS
    for table in _tables(schema):
        if isinstance(table.get("required"), list):
            del table["required"]
    return schema


def _tables(part: object) -> Iterator[Schema]:
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _tables(each)
