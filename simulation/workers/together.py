"""Which clients can be trained together, a group at a time, to the figures that each has alone."""

from edge_client.personalisation.neighbours import NeighboursHalf
from edge_client.personalisation.plain import PlainHalf
from edge_client.personalisation.registry import build_client_half
from models.plan.plan import Plan
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.model import ModelSettings
from models.settings.plugin import PluginModel


class TogetherError(ValueError):
    """Raised when clients of a plan cannot be trained together; the text says why."""


def check_together(plan: Plan) -> None:
    """Check that clients of a plan can be trained together.

    Raises:
        TogetherError: If they cannot.
    """
    reason = _reason_against(plan)
    if reason is not None:
        raise TogetherError(f"clients cannot be trained together: {reason}; leave --together out")


def _reason_against(plan: Plan) -> str | None:
    return _reason_in_model(plan.model) or _reason_in_training(plan)


def _reason_in_model(model: ModelSettings) -> str | None:
    if isinstance(model, PluginModel):
        return f'model "{model.name}" is a plugin\'s, whose operations nobody here knows'
    if not isinstance(model, VitSettings | ConvNetSettings):
        return (
            f'model.family "{model.__struct_config__.tag}" reads text of any length from state to '
            "state, and gradients made by functions of our own cannot be stacked"
        )
    if isinstance(model, ConvNetSettings) and model.batch_norm:
        return "a batch norm changes its running statistics in the forward pass"
    return None


def _reason_in_training(plan: Plan) -> str | None:
    training = plan.training
    if not isinstance(build_client_half(plan.personalisation), PlainHalf | NeighboursHalf):
        return f'method "{plan.personalisation.method}" has a training of its own'
    if training.optimiser_state == "kept":
        return 'training.optimiser_state is "kept", and clients took different numbers of steps'
    if plan.compression is not None and plan.compression.layer_groups is not None:
        return "compression.layer_groups is set, and layers that stand still are stepped too"
    if training.precision != "float32":
        return f'training.precision is "{training.precision}", and only float32 is alike'
    return None
