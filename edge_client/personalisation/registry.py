"""Choose the client half of the personalisation method.

A method that only chooses roles has none of its own. One that does more is one file here and one
case below.
"""

from edge_client.personalisation.balanced_head import BalancedHeadHalf
from edge_client.personalisation.head_first import FedRepHalf
from edge_client.personalisation.method import ClientHalf
from edge_client.personalisation.own_model import DittoHalf, PFedMeHalf
from edge_client.personalisation.plain import PlainHalf
from edge_client.personalisation.proximal import FedProxHalf
from models.personalisation_settings import (
    DittoSettings,
    FedProxSettings,
    FedRepSettings,
    FedRodSettings,
    FedTpSettings,
    PersonalisationSettings,
    PFedMeSettings,
)


def build_client_half(settings: PersonalisationSettings) -> ClientHalf:
    """Return what a device does beyond roles.

    Args:
        settings: The method.
    """
    match settings:
        case FedProxSettings():
            return FedProxHalf(settings)
        case FedRepSettings():
            return FedRepHalf()
        case PFedMeSettings():
            return PFedMeHalf(settings)
        case DittoSettings():
            return DittoHalf(settings)
        case FedRodSettings() | FedTpSettings(head="balanced"):
            return BalancedHeadHalf(settings)
        case _:
            return PlainHalf()
