"""The page of a file of settings: a table for each of its tables, made from its schema.

The schema has the settings' own docstrings, types and defaults, so a page cannot fall behind them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deploy.docs.guides import slug
from deploy.docs.settings_files import SettingsFile
from privacy.foundation.toml_schema import Schema

_TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "object": "table",
}
_TOP = "Outside all tables"


@dataclass(frozen=True)
class Kind:
    """One kind of a table.

    Attributes:
        name: Its settings' class.
        picked_by: The line that picks it, as ``mode = "central"``, or nothing.
    """

    name: str
    picked_by: str = ""


def settings_page(file: SettingsFile) -> str:
    """Return the page of one file as Markdown."""
    schema = file.schema()
    tables: dict[str, dict[Kind, None]] = {}
    _collect(schema, "", schema, tables)
    lines = [
        # The page of a setting comes before the guides that mention it.
        "---\nsearch:\n  boost: 2\n---\n",
        f"# {file.name}",
        "",
        f"{file.note} `{file.command}` prints the same as a JSON schema, with which editors "
        "complete the file and mark what is wrong. A setting of another name is refused.",
    ]
    for path, kinds in tables.items():
        lines += ["", f"## {_title(path)}"]
        several = len(kinds) > 1
        for kind in kinds:
            part = schema["$defs"][kind.name]
            picked = f"`{kind.picked_by}`" if kind.picked_by else kind.name
            lines += ["", f"### {picked}"] if several else []
            lines += ["", _words(part.get("description", "")), ""]
            lines += _table(path, kind, schema)
    return "\n".join(lines) + "\n"


def _collect(part: Schema, path: str, schema: Schema, tables: dict[str, dict[Kind, None]]) -> None:
    """Add the tables that a part of the schema leads to, each under its path in the file."""
    for kind in _kinds(part):
        if kind in tables.setdefault(path, {}):
            continue
        tables[path][kind] = None
        for name, field in schema["$defs"][kind.name].get("properties", {}).items():
            below = f"{path}.{name}" if path else name
            if any(_kinds(field)):
                _collect(field, below, schema, tables)


def _kinds(part: Schema) -> Iterator[Kind]:
    """Yield the kinds of table that a field can hold."""
    if reference := part.get("$ref"):
        yield Kind(_named(reference))
    elif picker := part.get("discriminator"):
        for value, target in picker["mapping"].items():
            yield Kind(_named(target), f"{picker['propertyName']} = {_toml(value)}")
    else:
        for each in part.get("anyOf", ()):
            yield from _kinds(each)


def _table(path: str, kind: Kind, schema: Schema) -> Iterator[str]:
    """Yield the lines of one kind's table."""
    part = schema["$defs"][kind.name]
    properties: Mapping[str, Schema] = part.get("properties", {})
    if not properties:
        yield "It has no settings."
        return
    yield '<div class="settings" markdown>'
    yield ""
    yield "| setting | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in properties.items():
        kinds = list(_kinds(field))
        below = f"{path}.{name}" if path else name
        shown = f"[table](#{slug(_title(below))})" if kinds else _type(field)
        default = _default(field, kinds, schema)
        if default is None:
            default = "**required**" if name in part.get("required", ()) else "absent"
        meaning = field.get("description", "")
        if not meaning and kinds:
            meaning = schema["$defs"][kinds[0].name].get("description", "")
        if not meaning and kind.picked_by.startswith(f"{name} = "):
            meaning = "Picks this kind."
        yield f"| `{name}` | {shown} | {default} | {_words(meaning)} |"
    yield ""
    yield "</div>"


def _type(field: Schema) -> str:
    """Return the type of a single value, in words."""
    if "enum" in field:
        return " or ".join(_code(value) for value in field["enum"])
    if "anyOf" in field:
        kept = [each for each in field["anyOf"] if each.get("type") != "null"]
        return ", or ".join(dict.fromkeys(_type(each) for each in kept))
    if field.get("type") == "array":
        if "prefixItems" in field:
            return f"{len(field['prefixItems'])} of {_type(field['prefixItems'][0])}"
        return f"list of {_type(field['items'])}"
    return _TYPES[field["type"]]


def _default(field: Schema, kinds: list[Kind], schema: Schema) -> str | None:
    """Return the default as TOML has it, or None if the schema has none."""
    if "default" not in field:
        return None
    default = field["default"]
    if default is None:
        return "absent"
    if not kinds:
        return _code(default)
    if picker := next((kind for kind in kinds if kind.picked_by and _is_of(default, kind)), None):
        return f"`{picker.picked_by}`"
    # Left out, a table can have other defaults than where it is begun.
    own = schema["$defs"][kinds[0].name]["properties"]
    other = {name: value for name, value in default.items() if own[name].get("default") != value}
    return ", ".join(f"`{name} = {_toml(value)}`" for name, value in other.items()) or "as below"


def _is_of(default: Mapping[str, object], kind: Kind) -> bool:
    return kind.picked_by in [f"{name} = {_toml(value)}" for name, value in default.items()]


def _code(value: object) -> str:
    return f"`{_toml(value)}`"


def _toml(value: object) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}" if abs(value) >= 100_000 else str(value)
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _title(path: str) -> str:
    return f"[{path}]" if path else _TOP


def _named(reference: str) -> str:
    return reference.rpartition("/")[2]


def _words(text: str) -> str:
    """Return a docstring's words as one cell of a table."""
    outside = [
        piece
        if place % 2
        else piece.replace("<", "&lt;").replace("_", r"\_").replace("*", r"\*").replace("[", r"\[")
        for place, piece in enumerate(" ".join(text.replace("``", "`").split()).split("`"))
    ]
    return "`".join(outside).replace("|", r"\|")
