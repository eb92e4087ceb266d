"""Build the network that a plan's settings name.

A new family is its settings in ``models/model_settings.py``, one file with its network, and one
line here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

import torch
from torch.overrides import TorchFunctionMode

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
    with torch.device(device), _Undrawn():
        network = _network(settings)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    return network


class _Undrawn(TorchFunctionMode):
    """Leave new parameters as memory has them.

    The device ``meta`` would do so too, but draws there by Python code that takes a second of
    processor time to import.
    """

    # Any: whatever torch's functions take and give.
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def _network(settings: ModelSettings) -> Network:
    match settings:
        case GruLmSettings():
            return GruLm(settings)
        case TransformerLmSettings():
            return TransformerLm(settings)
        case _:
            assert_never(settings)
