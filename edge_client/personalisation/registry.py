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
)


def build_client_half(settings: PersonalisationSettings) -> ClientHalf:
    """Return what a device does beyond roles.

    Raises:
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
        case _:
            half = PlainHalf()
    return half
