"""The allowed values of a setting, where msgspec names only the wrong one.

Decoding refuses a name that is not there, or a value that is none of a list, and names neither the
list nor what was meant. Both stand in the types, so they are looked up there, on the way to the
place that the error names.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import inspect

from privacy.foundation.removed_settings import REMOVED

_PLACE = re.compile(r" - at `(?P<place>\$[^`]*)`$")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?:\d+|\.\.\.)\]")
# At the beginning: a check of a struct's own may tell of a table inside, which it has explained.
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


def explained(error: msgspec.ValidationError, tables: object, wanted: type) -> str:
    """Return the error's text, and with it the names or values that are allowed there."""
    text = str(error)
    found = _PLACE.search(text)
    # Places in a list are no step: all its items are of one type.
    named = (step["name"] for step in _STEP.finditer(found["place"] if found else ""))
    steps = [name for name in named if name is not None]
    unknown = _UNKNOWN_FIELD.match(text)
    if unknown is not None:
        structs = _structs(wanted, tables, steps)
        known = [field.encode_name for struct in structs for field in struct.fields]
        return f"{text}; {_meant(unknown['name'], known)}" if known else text
    if text.startswith(("Invalid enum value", "Invalid value")):
        values = dict.fromkeys(_values(wanted, tables, steps))
        allowed = [value for value in values if (*steps, value) not in REMOVED]
        return f"{text}; it must be one of {', '.join(allowed)}" if allowed else text
    return text


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(set(known)))}"


def _structs(wanted: type, tables: object, steps: list[str]) -> list[inspect.StructType]:
    """Return what may stand at a place: its structs, only the tagged one where a tag is given."""
    types, given = [inspect.type_info(wanted)], tables
    for step in steps:
        types = [kind for kind in (_step(one, step, given) for one in types) if kind is not None]
        given = given.get(step) if isinstance(given, Mapping) else None
    return [struct for kind in types for struct in _chosen(kind, given)]


def _step(kind: inspect.Type, name: str, given: object) -> inspect.Type | None:
    """Return the type of a field of whatever struct a type is; None if it has none."""
    found = (_type_of(struct, name) for struct in _chosen(kind, given))
    return next((one for one in found if one is not None), None)


def _type_of(struct: inspect.StructType, name: str) -> inspect.Type | None:
    return next((field.type for field in struct.fields if field.encode_name == name), None)


def _chosen(kind: inspect.Type, given: object) -> list[inspect.StructType]:
    """Return a type's structs, only the one whose tag is given if it is."""
    structs = [one for one in _alternatives(kind) if isinstance(one, inspect.StructType)]
    if isinstance(given, Mapping):
        tagged = [one for one in structs if one.tag_field and given.get(one.tag_field) == one.tag]
        return tagged or structs
    return structs


def _values(wanted: type, tables: object, steps: list[str]) -> Iterable[str]:
    """Yield the values that are allowed at a place: those of a literal, or tags."""
    if not steps:
        return
    for struct in _structs(wanted, tables, steps[:-1]):
        if struct.tag_field == steps[-1]:
            yield str(struct.tag)
        found = _type_of(struct, steps[-1])
        for one in _alternatives(found) if found is not None else ():
            if isinstance(one, inspect.LiteralType):
                yield from map(str, one.values)


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield what a type may be, looking into unions, lists and annotations."""
    match kind:
        case inspect.UnionType(types=types):
            for one in types:
                yield from _alternatives(one)
        case inspect.CollectionType(item_type=item):
            yield from _alternatives(item)
        case inspect.Metadata(type=inner):
            yield from _alternatives(inner)
        case _:
            yield kind
