"""Assign roles: which tensors are everyone's, generated for a person, or personal.

A personalisation method chooses a role for each tensor. Its client half is in
``edge_client/personalisation/``, its server half in ``server/personalisation/``. Shared and
generated tensors *travel*, as one flat vector in schema order; personal ones never leave the
device. No torch: the resting agent asks too.
"""

import msgspec

from models.settings.personalisation import (
    AdaptedSettings,
    FedBnSettings,
    FedPerSettings,
    FedRepSettings,
    FedRodSettings,
    FedTpSettings,
    LocalSettings,
    PersonalisationSettings,
    PFedGpSettings,
    PFedHnSettings,
    PluginMethod,
    VanillaSettings,
)
from models.vector.named_parts import MissingPartError, Part, belongs, part_names
from models.vector.schema import Role, Schema

_ONE_CLASS_TASK = "image_classification"
_TASKS_OF_FEW_CLASSES = ("next_character", _ONE_CLASS_TASK)
_TASKS_WITH_A_NEWEST = ("next_word", "next_character", "speech")
_TASKS_WITH_FEATURES = ("next_word", *_TASKS_OF_FEW_CLASSES)


def assign_roles(settings: PersonalisationSettings, schema: Schema) -> Schema:
    """Return a model's schema with the roles that the method gives.

    A voice's speaker is personal under every method, since the speaker is the client.

    Raises:
        MissingPartError: If the model lacks a part that the method needs.
    """
    if has_balanced_head(settings):
        _head(settings, schema)  # The personal head that is added has its shape.
    roles = dict.fromkeys(_personal_names(settings, schema), Role.PERSONAL)
    roles |= dict.fromkeys(_generated_names(settings, schema), Role.GENERATED)
    speaker = (spec.name for spec in schema.tensors if belongs(spec.name, Part.SPEAKER))
    roles |= dict.fromkeys(speaker, Role.PERSONAL)
    return Schema(
        tuple(
            msgspec.structs.replace(spec, role=roles.get(spec.name, Role.SHARED))
            for spec in schema.tensors
        )
    )


def has_balanced_head(settings: PersonalisationSettings) -> bool:
    """Return whether the generic head learns by balanced softmax and a personal one adds to it."""
    return isinstance(settings, FedRodSettings) or (
        isinstance(settings, FedTpSettings) and settings.head == "balanced"
    )


def check_local_epochs(settings: PersonalisationSettings, local_epochs: int) -> None:
    """Raise ``ValueError`` if method ``fedrep`` has fewer than two local epochs, one a phase."""
    if isinstance(settings, FedRepSettings) and local_epochs < 2:
        raise ValueError(
            f'local_epochs must be >= 2 with method "{settings.method}", got {local_epochs}: the '
            "last trains the body, those before it the head"
        )


def check_task(settings: PersonalisationSettings, task: str) -> None:
    """Raise ``ValueError`` if the method cannot predict what the task asks for."""
    if isinstance(settings, PFedGpSettings) and task != _ONE_CLASS_TASK:
        raise ValueError(
            f'method "{settings.method}" needs task = "{_ONE_CLASS_TASK}", got "{task}": each '
            "place of a text would be a point of its own, and work grows with their third power"
        )
    if has_balanced_head(settings) and task not in _TASKS_OF_FEW_CLASSES:
        raise ValueError(
            f"balanced softmax needs task = {' or '.join(map(repr, _TASKS_OF_FEW_CLASSES))}, got "
            f'"{task}": a person never uses most words of a vocabulary, and those would never be '
            "learnt; set another method, or head"
        )
    if isinstance(settings, AdaptedSettings) and task not in _TASKS_WITH_A_NEWEST:
        raise ValueError(
            f'method "{settings.method}" needs task = '
            f'{" or ".join(map(repr, _TASKS_WITH_A_NEWEST))}, got "{task}": the newest text or '
            "clips decide whether a device keeps its own model"
        )
    votes = isinstance(settings, FedTpSettings) and settings.neighbours is not None
    if votes and task not in _TASKS_WITH_FEATURES:
        raise ValueError(
            f'personalisation.neighbours must be absent with task = "{task}"; they go with '
            f"{', '.join(_TASKS_WITH_FEATURES)}"
        )


def _personal_names(settings: PersonalisationSettings, schema: Schema) -> tuple[str, ...]:
    match settings:
        case LocalSettings():
            return tuple(schema.slices)
        case FedPerSettings() | FedRepSettings() | FedTpSettings(head="personal"):
            return _head(settings, schema)
        case FedBnSettings():
            return part_names(schema, Part.BATCH_NORM, method=settings.method)
        case PluginMethod():
            return settings.personal_names(schema)
        case VanillaSettings():
            return part_names(schema, Part.PROJECTION, method=settings.method)
        case _:
            return ()


def _generated_names(settings: PersonalisationSettings, schema: Schema) -> tuple[str, ...]:
    match settings:
        case FedTpSettings():
            return part_names(schema, Part.PROJECTION, method=settings.method)
        case PFedHnSettings():
            _check_can_be_made(settings, schema)
            return tuple(schema.slices)
        case _:
            return ()


def _head(settings: PersonalisationSettings, schema: Schema) -> tuple[str, ...]:
    return part_names(schema, Part.HEAD, method=settings.method)


def _check_can_be_made(settings: PersonalisationSettings, schema: Schema) -> None:
    for spec in schema.tensors:
        if belongs(spec.name, Part.BATCH_NORM):
            raise MissingPartError(
                f'method "{settings.method}" makes every tensor, and running statistics, as '
                f"those of {spec.layer}, follow no gradient; set model.batch_norm = false, for a "
                'voice model.norm = "layer"'
            )
