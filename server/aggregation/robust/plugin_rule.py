"""Reduce columns by a plugin's rule, and take nothing from it that is no update."""

import torch
from torch import Tensor

from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.plugin import plugin_speaks
from server.aggregation.robust_settings import PluginRule


def reduced_by_plugin(settings: PluginRule, rows: Tensor) -> Tensor:
    """Return one value for each column of float32 rows, shape ``(cohort, columns)``.

    Raises:
        PluginError: If the plugin raises, or returns anything but finite float32, ``(columns,)``.
    """
    own = settings.own
    with plugin_speaks(Part.AGGREGATION, settings.name):
        reduced = own.reduce_rows(rows)
    is_update = isinstance(reduced, Tensor) and reduced.dtype is torch.float32
    if not is_update or reduced.shape != rows.shape[1:] or not bool(reduced.isfinite().all()):
        raise PluginError(
            f"{settings.name} of {Part.AGGREGATION} must return finite float32 of shape "
            f"({rows.shape[1]},)"
        )
    return reduced
