"""Load the plugins that the owner's floor names, before a plan that needs some is decoded."""

import msgspec

from edge_client.folder.layout import DeviceFolder
from edge_client.owner.floor import read_floor
from models.plan.plugins import plugins_in
from models.plugins.loaded import load_plugins
from models.plugins.names import PluginError


def load_own_plugins(plan: bytes, folder: DeviceFolder) -> None:
    """Import what the floor names now; what its owner took out meanwhile is not imported.

    A plan decides whether, and never what: decoding refuses it if it names another one.

    Raises:
        FloorError: If the floor cannot be read.
        PluginError: If a plugin of the floor cannot be used.
    """
    try:
        needed = plugins_in(plan)
    except (PluginError, msgspec.DecodeError):
        return  # ``decode_plan`` says what is wrong with it.
    if needed:
        load_plugins(read_floor(folder.floor).plugins)
