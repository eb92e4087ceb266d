"""The parts that a plugin may have, each an entry-point group, and the names that sotto has taken.

A test compares the taken names with the registries that they are of.
"""

from collections.abc import Mapping
from enum import StrEnum


class Part(StrEnum):
    """A group of entry points, whose names are those that files and plans write."""

    MODELS = "sotto.models"
    NETWORKS = "sotto.networks"
    TASKS = "sotto.tasks"
    AGGREGATION = "sotto.aggregation"
    PERSONALISATION = "sotto.personalisation"
    CLIENT_HALVES = "sotto.client_halves"
    EXPORT = "sotto.export"


WITHOUT_TORCH = (Part.MODELS, Part.AGGREGATION, Part.PERSONALISATION)
"""Groups of settings, which a resting device and a command's first moment load too."""

BASE_OF: Mapping[Part, Part] = {
    Part.NETWORKS: Part.MODELS,
    Part.CLIENT_HALVES: Part.PERSONALISATION,
    Part.EXPORT: Part.MODELS,
}
"""Parts that belong to one of the same name and plugin: what needs torch or onnx, to settings."""

TAKEN: Mapping[Part, frozenset[str]] = {
    Part.MODELS: frozenset(
        {
            *("gru_lm", "transformer_lm", "vit", "convnet", "char_lstm", "char_transformer"),
            *("seq2seq", "transformer_tts", "vocoder", "plugin"),
        }
    ),
    Part.TASKS: frozenset(
        {
            *("next_word", "next_character", "sequence", "image_classification"),
            *("speech", "vocoder"),
        }
    ),
    Part.AGGREGATION: frozenset(
        {
            *("mean", "attentive", "literal", "median", "trimmed-mean", "krum"),
            *("geometric-median", "trimmed-attentive", "plugin"),
        }
    ),
    Part.PERSONALISATION: frozenset(
        {
            *("global", "local", "fedprox", "fedper", "fedrep", "fedbn", "pfedme", "ditto"),
            *("pfedhn", "pfedgp", "fedrod", "fedtp", "vanilla", "adapted", "plugin"),
        }
    ),
}
"""Names of sotto's own, which no plugin may have."""
