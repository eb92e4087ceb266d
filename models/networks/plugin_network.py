"""Networks that plugins make, each checked against the schema that its plugin gives."""

import torch
from torch import nn

from models.plugins.loaded import part_of
from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.plugin import PluginModel, plugin_speaks


class PluginNetwork(nn.Module):
    """The base of a plugin's networks: modules whose first parameters are drawn from a generator.

    ``sotto.networks`` names its class, which is called with the settings of ``sotto.models``. Use
    ``models.layers.dropout.Dropout``, whose draws repeat, and running statistics not at all.
    """

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all parameters; they are zero before."""
        raise NotImplementedError


def plugin_network(settings: PluginModel) -> PluginNetwork:
    """Return the network, undrawn.

    Raises:
        PluginError: If the plugin makes none, or one of other tensors than its schema.
    """
    make, own = part_of(Part.NETWORKS, settings.name), settings.own
    with plugin_speaks(Part.NETWORKS, settings.name):
        network = make(own)
    if not isinstance(network, PluginNetwork):
        raise PluginError(
            f"{settings.name} of {Part.NETWORKS} must make a PluginNetwork, got "
            f"{type(network).__name__}"
        )
    has = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    wants = {spec.name: spec.shape for spec in settings.schema().tensors}
    if has != wants:
        differing = sorted(name for name, _ in has.items() ^ wants.items())
        raise PluginError(
            f"{settings.name} must have the tensors of its schema, in {Part.NETWORKS} as in "
            f"{Part.MODELS}; these differ: {', '.join(dict.fromkeys(differing))}"
        )
    return network
