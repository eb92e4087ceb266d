"""Settings that sotto had once, and what takes their place."""

from collections.abc import Mapping

import msgspec

_OTHER_RULES = 'aggregation.rule = "trimmed-attentive" or "geometric-median"'
_OVER_SELECTION = 'rounds.selection = "first-come" and rounds.over_selection'
_OTHER_FORMS = 'compression.keep = "top", or compression.uplink = "int8" or "int4"'
REMOVED: Mapping[tuple[str, str | None, str | None], str] = {
    ("aggregation", "rule", "centred-clipping"): _OTHER_RULES,
    ("aggregation", "rule", "norm-bounded"): _OTHER_RULES,
    ("compression", "uplink", "float16"): 'compression.uplink = "bfloat16"',
    ("compression", "keep", "random"): _OTHER_FORMS,
    ("compression", "rank", None): _OTHER_FORMS,
    ("rounds", "buffered", None): _OVER_SELECTION,
    ("speeds", None, None): _OVER_SELECTION,
}
"""Replacements by table, key and value; None is a whole table or any value."""


def check_removed(tables: object) -> None:
    """Refuse settings that were removed, in tables as TOML and JSON have them.

    Raises:
        ValidationError: msgspec's, if one is set; names it and what to use instead.
    """
    for (table, key, value), instead in REMOVED.items():
        settings = tables.get(table) if isinstance(tables, Mapping) else None
        if key is None:
            name, found = f"[{table}]", settings
        else:
            found = settings.get(key) if isinstance(settings, Mapping) else None
            name = f"{table}.{key}"
        if found is None or value not in (found, None):
            continue
        asked = "" if isinstance(found, Mapping) else f" = {msgspec.json.encode(found).decode()}"
        raise msgspec.ValidationError(f"{name}{asked} was removed; use {instead}")
