"""Name the personalisation methods as results tables do, each with the settings it stands for."""

from collections.abc import Mapping
from typing import Any

# TOML tables: values of any TOML type.
_METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"method": "global"},
    "fedtp-fedper": {"method": "fedtp", "head": "personal"},
    "fedtp-fedrod": {"method": "fedtp", "head": "balanced"},
    "fedtp-knn": {"method": "fedtp", "neighbours": {}},
}
_PLAIN = (
    "global",
    "local",
    "fedprox",
    "fedper",
    "fedrep",
    "fedbn",
    "pfedme",
    "pfedhn",
    "pfedgp",
    "fedrod",
    "vanilla",
    "fedtp",
    "ditto",
    "adapted",
)
METHOD_NAMES = tuple(sorted({*_PLAIN, *_METHODS}))


def method_table(name: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table ``[personalisation]`` that one of ``METHOD_NAMES`` stands for.

    Options that ``tables`` gives this method stay.

    Raises:
        ValueError: If there is no such method.
    """
    if name not in METHOD_NAMES:
        raise ValueError(f"method must be one of {', '.join(METHOD_NAMES)}, got {name!r}")
    settings = _METHODS.get(name, {"method": name})
    given = tables.get("personalisation", {})
    same = isinstance(given, dict) and given.get("method") == settings["method"]
    return {**(given if same else {}), **settings}
