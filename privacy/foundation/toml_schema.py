"""The JSON schema of a TOML file of settings, by which editors complete it and mark what is wrong.

It is made from the settings themselves: types, defaults and choices of the fields, and what the
docstrings say of them. Rules that join several settings are checked when the file is read.

References:
    JSON Schema, draft 2020-12, https://json-schema.org/draft/2020-12.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from privacy.foundation.attribute_texts import attribute_texts

Schema: TypeAlias = dict[str, Any]  # It holds values of any JSON type.

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class NoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a command that has none."""


def schema_command(
    file: str, schema: Callable[[], type[msgspec.Struct] | Schema]
) -> Callable[[NoSettings], int]:
    """Return a handler, ``schema``, that prints the schema of a program's one file of settings.

    ``schema`` gives it, or the settings it is made from, once it is asked for.
    """

    def _schema(_: NoSettings) -> int:
        given = schema()
        print_schema(given if isinstance(given, dict) else toml_schema(given, file))
        return 0

    _schema.__doc__ = f"Print the JSON schema of {file}, for editors that complete and check it."
    return _schema


def print_schema(schema: Schema) -> None:
    """Print a schema as a file to keep beside the settings."""
    text = msgspec.json.format(msgspec.json.encode(schema), indent=2)
    print(text.decode())  # noqa: T201  # a command's answer


def toml_schema(kind: type[msgspec.Struct], file: str) -> Schema:
    """Return the schema of the settings in ``file``, each with its docstring's words."""
    kinds = {each.__name__: each for each in _structs(msgspec.inspect.type_info(kind), set())}
    (whole,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for name, part in parts.items():
        if name in kinds:
            _describe(part, kinds[name])
    return {"$schema": _DRAFT, "title": file, **whole, "$defs": parts}


def _describe(part: Schema, kind: type[msgspec.Struct]) -> None:
    part["description"] = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
    texts = attribute_texts(kind)
    for name, field in part.get("properties", {}).items():
        if text := texts.get(name):
            field["description"] = " ".join(text.replace("``", "`").split())


def _structs(shape: Any, met: set[type]) -> Iterator[type[msgspec.Struct]]:
    """Give every kind of settings within one, wherever it stands."""
    if isinstance(shape, msgspec.inspect.StructType):
        if shape.cls in met:
            return
        met.add(shape.cls)
        yield shape.cls
    if isinstance(shape, msgspec.Struct):
        for name in shape.__struct_fields__:
            yield from _structs(getattr(shape, name), met)
    elif isinstance(shape, tuple):
        for each in shape:
            yield from _structs(each, met)
