"""Build the network that a plan's settings name.

A new family is its settings in ``models/settings/model.py``, one file with its network, and one
line here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never, overload

import torch
from torch.overrides import TorchFunctionMode

from models.networks.char_lstm import CharLstm
from models.networks.char_transformer import CharTransformer
from models.networks.convnet import ConvNet
from models.networks.gru_lm import GruLm
from models.networks.plugin_network import PluginNetwork, plugin_network
from models.networks.seq2seq import Seq2Seq
from models.networks.transformer_lm import TransformerLm
from models.networks.vit import Vit
from models.networks.vocoder import Vocoder
from models.networks.voice import TransformerTts
from models.settings.character import CharLstmSettings, CharTransformerSettings
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.model import (
    GruLmSettings,
    ModelSettings,
    TransformerLmSettings,
    WordModelSettings,
)
from models.settings.plugin import PluginModel
from models.settings.seq2seq import Seq2SeqSettings
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings

WordNetwork = GruLm | TransformerLm
"""Families of next words: modules that are a ``models.networks.language_model.LanguageModel``."""

ImageNetwork = Vit | ConvNet
"""Families of images: ``features`` turn pixels into what ``head`` reads, a row of it a class."""

CharacterNetwork = CharLstm | CharTransformer
"""Families of next characters: ``features`` of up to ``context_size`` are what ``head`` reads."""

Network = (
    WordNetwork
    | ImageNetwork
    | CharacterNetwork
    | Seq2Seq
    | TransformerTts
    | Vocoder
    | PluginNetwork
)
"""Every family."""


class WrongFamilyError(ValueError):
    """Raised when a task is given a network of a family that it is not for."""


def word_network(network: Network) -> WordNetwork:
    """Return the network, or raise ``WrongFamilyError`` if it does not predict words."""
    if isinstance(network, WordNetwork):
        return network
    raise _wrong_family(network, "next words", "gru_lm or transformer_lm")


def image_network(network: Network) -> ImageNetwork:
    """Return the network, or raise ``WrongFamilyError`` if it does not classify images."""
    if isinstance(network, ImageNetwork):
        return network
    raise _wrong_family(network, "classes of images", "vit or convnet")


def character_network(network: Network) -> CharacterNetwork:
    """Return the network, or raise ``WrongFamilyError`` if it does not predict characters."""
    if isinstance(network, CharacterNetwork):
        return network
    raise _wrong_family(network, "next characters", "char_lstm or char_transformer")


def sequence_network(network: Network) -> Seq2Seq:
    """Return the network, or raise ``WrongFamilyError`` if it does not write sequences."""
    if isinstance(network, Seq2Seq):
        return network
    raise _wrong_family(network, "sequences", "seq2seq")


def voice_network(network: Network) -> TransformerTts:
    """Return the network, or raise ``WrongFamilyError`` if it does not speak."""
    if isinstance(network, TransformerTts):
        return network
    raise _wrong_family(network, "speech", "transformer_tts")


def vocoder_network(network: Network) -> Vocoder:
    """Return the network, or raise ``WrongFamilyError`` if it is no vocoder."""
    if isinstance(network, Vocoder):
        return network
    raise _wrong_family(network, "sound", "vocoder")


def _wrong_family(network: Network, wanted: str, families: str) -> WrongFamilyError:
    return WrongFamilyError(
        f"the task needs a model of {wanted}, got {type(network).__name__}; "
        f"set model.family to {families}"
    )


@overload
def build_network(
    settings: WordModelSettings, device: torch.device | str = "cpu"
) -> WordNetwork: ...


@overload
def build_network(settings: ModelSettings, device: torch.device | str = "cpu") -> Network: ...


def build_network(settings: ModelSettings, device: torch.device | str = "cpu") -> Network:
    """Return a network with every tensor that travels zero, in training mode.

    Parameters come from ``models.networks.flat_parameters``: drawn once by ``initial_parameters``,
    or received. Nothing is drawn here, from the global generator least of all.
    """
    with torch.device(device), _Undrawn():
        network = _network(settings)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.zero_()
    return network


class _Undrawn(TorchFunctionMode):
    """A context in which new parameters keep whatever memory holds.

    The device ``meta`` would do so too, but its drawing code takes a second to import.
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
    network: Network
    match settings:
        case GruLmSettings():
            network = GruLm(settings)
        case TransformerLmSettings():
            network = TransformerLm(settings)
        case VitSettings():
            network = Vit(settings)
        case ConvNetSettings():
            network = ConvNet(settings)
        case CharLstmSettings():
            network = CharLstm(settings)
        case CharTransformerSettings():
            network = CharTransformer(settings)
        case Seq2SeqSettings():
            network = Seq2Seq(settings)
        case TransformerTtsSettings():
            network = TransformerTts(settings)
        case VocoderSettings():
            network = Vocoder(settings)
        case PluginModel():
            network = plugin_network(settings)
        case _:
            assert_never(settings)
    return network
