"""Load the plugins that a file of settings names, and refuse parts of others."""

from collections.abc import Mapping
from typing import Any

import msgspec

from models.plan.plugins import check_plugins
from models.plugins.loaded import check_named, load_plugins
from models.plugins.names import plugin_names
from models.plugins.parts import Part
from server.aggregation.robust_settings import PluginRule
from server.config.settings import FederationSettings


class _Named(msgspec.Struct):
    plugins: tuple[str, ...] = ()


def load_named(tables: Mapping[str, Any]) -> None:  # TOML values.
    """Import what a file names in ``plugins``, before its other settings are understood.

    Raises:
        ValidationError: msgspec's, if it is no list of texts.
        PluginError: As ``models.plugins.loaded.load_plugins``.
    """
    load_plugins(msgspec.convert(tables, _Named, strict=True).plugins)


def check_named_plugins(config: FederationSettings) -> None:
    """Check that the plugin of each part that the settings ask for is named, else PluginError."""
    check_plugins(config.plugins, config.model, config.task, config.personalisation)
    if isinstance(config.aggregation, PluginRule):
        check_named(Part.AGGREGATION, config.aggregation.name, plugin_names(config.plugins))
