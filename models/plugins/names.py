"""A plugin's name with its one version, as files and plans write it: ``spam-filter==1.0.0``."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_WRITTEN = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)==([A-Za-z0-9.+!_-]{1,64})"
)

MOST_PLUGINS = 16
"""Most plugins of one file or plan."""


class PluginError(ValueError):
    """Raised when a plugin cannot be used; the text names it and says what to do."""


class PluginName(NamedTuple):
    """A distribution's name, its letters small and its signs hyphens, and its version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def plugin_name(written: str) -> PluginName:
    """Read a name, or raise PluginError if it is not one package with one version."""
    found = _WRITTEN.fullmatch(written)
    if found is None:
        raise PluginError(
            f"plugins must be packages with one version each, such as spam-filter==1.0.0, got "
            f"{written[:120]!r}"
        )
    return PluginName(re.sub(r"[-_.]+", "-", found[1]).lower(), found[2])


def plugin_names(written: Sequence[str]) -> tuple[PluginName, ...]:
    """Read names, or raise PluginError if one is none, comes twice, or there are too many."""
    if len(written) > MOST_PLUGINS:
        raise PluginError(f"plugins must be at most {MOST_PLUGINS}, got {len(written)}")
    names = tuple(map(plugin_name, written))
    packages = [name for name, _ in names]
    for package in packages:
        if packages.count(package) > 1:
            raise PluginError(f"plugins must name each package once, got {package} more than once")
    return names


def listed(names: Sequence[PluginName]) -> str:
    """Return names as a file would have them: ``["spam-filter==1.0.0"]``."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
