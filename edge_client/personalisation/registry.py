"""Choose the client half of the personalisation method; one that only chooses roles has none."""

from edge_client.personalisation.adapted import AdaptedHalf
from edge_client.personalisation.balanced_head import BalancedHeadHalf
from edge_client.personalisation.gaussian_process import GaussianProcessHalf
from edge_client.personalisation.head_first import FedRepHalf
from edge_client.personalisation.method import ClientHalf
from edge_client.personalisation.neighbours import NeighboursHalf
from edge_client.personalisation.own_model import DittoHalf, PFedMeHalf
from edge_client.personalisation.plain import PlainHalf
from edge_client.personalisation.proximal import FedProxHalf
from models.plugins.loaded import has_part, part_of
from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.personalisation import (
    AdaptedSettings,
    DittoSettings,
    FedProxSettings,
    FedRepSettings,
    FedRodSettings,
    FedTpSettings,
    NeighbourSettings,
    PersonalisationSettings,
    PFedGpSettings,
    PFedMeSettings,
    PluginMethod,
)
from models.settings.plugin import plugin_speaks


def build_client_half(settings: PersonalisationSettings) -> ClientHalf:
    """Return what a device does beyond roles.

    Raises:
        PluginError: If the half is a plugin's, and is broken.
        MissingFaissError: If neighbours are to vote and FAISS is not installed.
    """
    half: ClientHalf
    match settings:
        case FedProxSettings():
            half = FedProxHalf(settings)
        case FedRepSettings():
            half = FedRepHalf()
        case PFedMeSettings():
            half = PFedMeHalf(settings)
        case DittoSettings():
            half = DittoHalf(settings)
        case AdaptedSettings():
            half = AdaptedHalf(settings)
        case FedRodSettings() | FedTpSettings(head="balanced"):
            half = BalancedHeadHalf(settings)
        case PFedGpSettings():
            half = GaussianProcessHalf(settings)
        case FedTpSettings(neighbours=NeighbourSettings() as neighbours):
            half = NeighboursHalf(neighbours)
        case PluginMethod(name=name) if has_part(Part.CLIENT_HALVES, name):
            half = _half_of_plugin(settings)
        case _:
            half = PlainHalf()
    return half


def _half_of_plugin(settings: PluginMethod) -> ClientHalf:
    make, own = part_of(Part.CLIENT_HALVES, settings.name), settings.own
    with plugin_speaks(Part.CLIENT_HALVES, settings.name):
        half = make(own)
    if not isinstance(half, ClientHalf):
        raise PluginError(
            f"{settings.name} of {Part.CLIENT_HALVES} must make a ClientHalf of "
            f"edge_client.personalisation.method, got {type(half).__name__}"
        )
    return half
