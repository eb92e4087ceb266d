"""The plugins that this process has loaded, each because a file of its own owner names it.

Nothing is imported because it is installed, nor because a plan names it: a plan can only ask for
what was loaded before. A process has one set of plugins, as it has one set of modules, and never
unloads one. A person's examples, and the machine, are as open to a plugin as to sotto itself:
whoever names one trusts it.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from models.plugins.names import PluginError, PluginName, listed, plugin_names
from models.plugins.parts import BASE_OF, TAKEN, WITHOUT_TORCH, Part

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_Entries = Mapping[tuple[Part, str], "EntryPoint"]

_LOADED: dict[PluginName, _Entries] = {}


def load_plugins(written: Sequence[str]) -> tuple[PluginName, ...]:
    """Import the settings of the plugins that a file names; those loaded before stay as they are.

    Halves that need torch are imported when a network or a task is made.

    Raises:
        PluginError: If one is not installed, or in another version, raises when it is imported,
            imports torch with its settings, or has a name that sotto or another plugin has.
    """
    names = plugin_names(written)
    for name in names:
        if name not in _LOADED:
            entries = _entries_of(name)
            _check_names(name, entries)
            for (part, own), entry in entries.items():
                if part in WITHOUT_TORCH:
                    _check_settings(name, part, own, _imported(name, entry))
            _LOADED[name] = entries
    return names


def part_of(part: Part, own: str) -> Any:  # Any: a part's protocol is that of who asks.
    """Import a loaded plugin's part by the name that it has in its group.

    Raises:
        PluginError: If no loaded plugin has it, or it raises when it is imported.
    """
    plugin = provider_of(part, own)
    return _imported(plugin, _LOADED[plugin][part, own])


def has_part(part: Part, own: str) -> bool:
    """Return whether a loaded plugin has the part."""
    return any((part, own) in entries for entries in _LOADED.values())


def provider_of(part: Part, own: str) -> PluginName:
    """Return the loaded plugin with the part, or raise PluginError if there is none."""
    for plugin, entries in _LOADED.items():
        if (part, own) in entries:
            return plugin
    raise PluginError(
        f"no loaded plugin has {own!r} in {part}; name the one that has it in plugins = "
        '["package==version"] of this side\'s own file'
    )


def names_of(part: Part, plugins: Sequence[PluginName]) -> tuple[str, ...]:
    """Return the names that loaded plugins have in a group, sorted."""
    return tuple(
        sorted(own for plugin in plugins for group, own in _LOADED[plugin] if group == part)
    )


def check_named(part: Part, own: str, plugins: Sequence[PluginName]) -> None:
    """Check that a file or plan names the plugin of a part that it asks for, else PluginError."""
    plugin = provider_of(part, own)
    if plugin not in plugins:
        raise PluginError(
            f"plugins must name {plugin}, which has {own!r} in {part}, got {listed(plugins)}"
        )


def check_loaded(plugins: Sequence[PluginName]) -> None:
    """Check that this process has loaded the plugins that a plan names, else PluginError."""
    for plugin in plugins:
        if plugin not in _LOADED:
            raise PluginError(
                f"plugin {plugin} is not loaded here; add it to plugins of this side's own file, "
                "for sotto-export with --plugin"
            )


def _entries_of(name: PluginName) -> dict[tuple[Part, str], "EntryPoint"]:
    """Return an installed package's entry points in sotto's groups; nothing is imported."""
    # What reads packages takes 3 MB, and few devices have a plugin.
    from importlib import metadata

    try:
        package = metadata.distribution(name.name)
    except metadata.PackageNotFoundError:
        raise PluginError(
            f"plugin {name} is not installed; install that version into this environment, or take "
            "it out of plugins"
        ) from None
    if package.version != name.version:
        raise PluginError(
            f"plugin {name.name} must be of version {name.version}, {package.version} is "
            f"installed; install {name}, or change the version in plugins"
        )
    entries: dict[tuple[Part, str], EntryPoint] = {}
    for entry in package.entry_points:
        if entry.group in set(Part):
            key = (Part(entry.group), entry.name)
            if key in entries:
                raise PluginError(
                    f"plugin {name} has two entry points {entry.name!r} in {entry.group}; ask its "
                    "author to rename one"
                )
            entries[key] = entry
    for part, own in entries:
        base = BASE_OF.get(part, part)
        if (base, own) not in entries:
            raise PluginError(
                f"plugin {name} has {own!r} in {part} without its settings in {base}; ask its "
                "author to name both"
            )
    if not entries:
        raise PluginError(
            f"{name} has no entry point of sotto, such as one in {Part.MODELS}: it is no plugin; "
            "take it out of plugins"
        )
    return entries


def _check_names(name: PluginName, entries: _Entries) -> None:
    for other in _LOADED:
        if other.name == name.name:
            raise PluginError(
                f"plugin {other} is loaded already, got {name}; one process has one version of a "
                "package: start it anew"
            )
    for part, own in entries:
        if own in TAKEN.get(part, ()):
            raise PluginError(
                f"plugin {name} has {own!r} in {part}, and sotto has one of that name; ask its "
                "author to rename it"
            )
        if has_part(part, own):
            raise PluginError(
                f"plugins {provider_of(part, own)} and {name} both have {own!r} in {part}; take "
                "one out of plugins"
            )


def _imported(name: PluginName, entry: "EntryPoint") -> Any:  # Any: as of ``part_of``.
    had_torch = "torch" in sys.modules
    try:
        found = entry.load()
    # Whatever somebody's module does as it is imported, it must end in one line that names it.
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"plugin {name} cannot be imported ({entry.value} of {entry.group}): "
            f"{type(error).__name__}: {error}"
        ) from error
    if Part(entry.group) in WITHOUT_TORCH and not had_torch and "torch" in sys.modules:
        raise PluginError(
            f"plugin {name} imports torch with {entry.value} of {entry.group}, which a resting "
            "device loads; ask its author to import torch in the network's module alone"
        )
    return found


def _check_settings(name: PluginName, part: Part, own: str, found: object) -> None:
    if not (
        isinstance(found, type)
        and issubclass(found, msgspec.Struct)
        and found.__struct_config__.forbid_unknown_fields
    ):
        raise PluginError(
            f"plugin {name} must have a msgspec.Struct of settings, with "
            f"forbid_unknown_fields=True, as {own!r} in {part}, got {found!r}"
        )
