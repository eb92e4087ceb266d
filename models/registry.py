"""Build the network that a plan's settings name.

A new family is its settings in ``models/model_settings.py``, one file with its network, and one
line here.
"""

from typing import assert_never

import torch

from models.gru_lm import GruLm
from models.model_settings import GruLmSettings, ModelSettings, TransformerLmSettings
from models.transformer_lm import TransformerLm

Network = GruLm | TransformerLm
"""Every family: a module that is a ``models.language_model.LanguageModel``."""


def build_network(settings: ModelSettings, device: torch.device | str = "cpu") -> Network:
    """Return a network with every parameter zero, in training mode.

    Parameters come from ``models.parameters``: drawn once by ``initial_parameters``, or received.
    Nothing is drawn here, from the global generator least of all.

    Args:
        settings: The model's settings.
        device: Where the parameters lie.
    """
    with torch.device("meta"):
        network = _network(settings)
    network.to_empty(device=device)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    return network


def _network(settings: ModelSettings) -> Network:
    match settings:
        case GruLmSettings():
            return GruLm(settings)
        case TransformerLmSettings():
            return TransformerLm(settings)
        case _:
            assert_never(settings)
