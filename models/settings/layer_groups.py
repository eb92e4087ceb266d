"""Divide a model's layers into groups, one of which is trained and sent in each round. No torch.

A device computes gradients for part of the model and sends less. All devices of a round send the
same layers, so the coordinator averages parameters that were trained together.

References:
    [FedPart] Wang et al., NeurIPS 2024, arXiv:2410.11559: layers in turn, the rest frozen.
"""

from itertools import accumulate

from models.settings.compression import CompressionSettings
from models.settings.personalisation import GlobalSettings, PersonalisationSettings
from models.vector.schema import Schema
from privacy.noise.settings import PrivacySettings


def check_layer_groups(
    settings: CompressionSettings,
    schema: Schema,
    *,
    personalisation: PersonalisationSettings,
    privacy: PrivacySettings,
    keeps_optimiser: bool,
    hides_examples: bool,
) -> None:
    """Raise ``ValueError`` if layers cannot be trained in turn; names the setting in the way."""
    if settings.layer_groups is None:
        return
    layer_groups(schema, settings.layer_groups)
    for stands_in_the_way, rule in (
        (
            not isinstance(personalisation, GlobalSettings),
            f'personalisation.method = "global", got "{personalisation.method}"',
        ),
        (keeps_optimiser, 'training.optimiser_state = "fresh": a state has steps of every layer'),
        (hides_examples, "no training.example_privacy: its norms are over every parameter"),
        (privacy.adaptation is not None, "no adaptive_clipping: groups differ in length"),
    ):
        if stands_in_the_way:
            raise ValueError(f"compression.layer_groups goes with {rule}")


def layer_groups(schema: Schema, count: int) -> tuple[Schema, ...]:
    """Return the groups in order: neighbouring layers, with about as many elements in each.

    Raises:
        ValueError: If there are fewer layers than groups.
    """
    layers = list(dict.fromkeys(spec.layer for spec in schema.tensors))
    if not 1 <= count <= len(layers):
        raise ValueError(
            f"compression.layer_groups must be in [2, {len(layers)}], the layers that are trained "
            f"({', '.join(layers)}), got {count}"
        )
    sizes = dict.fromkeys(layers, 0)
    for spec in schema.tensors:
        sizes[spec.layer] += spec.element_count
    ends = list(accumulate(sizes.values()))
    groups: list[list[str]] = [[] for _ in range(count)]
    place = 0
    for index, layer in enumerate(layers):
        left = len(layers) - index
        middle = ends[index] - sizes[layer] / 2
        is_full = middle * count >= (place + 1) * ends[-1]
        if groups[place] and place + 1 < count and (is_full or left == count - place - 1):
            place += 1
        groups[place].append(layer)
    return tuple(
        Schema(tuple(spec for spec in schema.tensors if spec.layer in group)) for group in groups
    )


def group_of_round(schema: Schema, count: int, round_number: int) -> Schema:
    """Return the tensors of a round, counted from 1; the groups take turns."""
    return layer_groups(schema, count)[(round_number - 1) % count]
