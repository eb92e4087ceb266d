"""Craft models and plans that ask for one word, as a captured coordinator would.

A secret word is typed by one of two people. A crafted model is finite, or is not; it touches that
word's row, or the weights that read it, with numbers that make training leave float32, stop, or
crawl for whoever typed the word. A plan does the same with its settings and its word list.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.random import Generator

from models.networks.flat_parameters import initial_parameters
from models.plan.plan import Plan, TrainingSettings, VocabularySettings, plan_schema
from models.settings.compression import CompressionSettings
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.model import (
    GruLmSettings,
    TransformerLmSettings,
    WordModelSettings,
    schema_of,
)
from models.settings.personalisation import DittoSettings, GlobalSettings, VanillaSettings
from models.text.vocabulary import SHIPPED_NAME, Vocabulary, shipped_vocabulary
from models.vector.codec import FlatVector
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise
from privacy.noise.settings import PrivacySettings

SECRET = "banana"
WORDS = Vocabulary((*shipped_vocabulary(18).words, SECRET, "zebra"))
GRU = GruLmSettings(vocabulary_size=len(WORDS), hidden_size=6)
TRANSFORMER = TransformerLmSettings(
    vocabulary_size=len(WORDS), model_size=4, head_count=1, layer_count=1, feedforward_size=4
)
ONLY_SECRET = Vocabulary((*WORDS.words[:2], *(f"{SECRET}{'s' * i}" for i in range(18))))
"""A list of words of which one person knows one, and the other none."""

MODES = ("local", "local-example", "example", "local-personal")
"""Modes whose onlooker is the coordinator; the last one keeps a state from round to round."""

CLIP, EXAMPLE_CLIP, Z = 1.0, 0.5, 1.0
_RATES = (1e-30, 0.5, 1e3, 1e6, 1e30, 3e38)
_FORMS = (
    None,
    CompressionSettings(uplink="bfloat16"),
    CompressionSettings(uplink="int8"),
    CompressionSettings(uplink="int4", error_feedback=True),
    CompressionSettings(uplink="int8", error_feedback=True, keep="top", keep_fraction=0.1),
)
_HUGE = (1e5, 1e6, 1e10, 1e19, 1e30, 3e38)


@dataclass(frozen=True)
class Crafted:
    """One model and plan; ``raw`` is flat float32 in schema order, finite or not."""

    kind: str
    plan: Plan
    words: Vocabulary
    raw: FlatVector


def crafted(mode: str, index: int) -> Crafted:
    """Return the model of an index in one of ``MODES``; the kinds take turns."""
    kinds = tuple(_KINDS)
    kind, rng = kinds[index % len(kinds)], np.random.default_rng([index, MODES.index(mode)])
    model: WordModelSettings = GRU if rng.random() < 0.6 else TRANSFORMER
    draft = _Draft(rng, model, WORDS, _training(mode, rng))
    raw = initial_parameters(model, index).numpy().copy()
    tensors = {
        spec.name: raw[schema_of(model).slices[spec.name]].reshape(spec.shape)
        for spec in schema_of(model).tensors
    }
    _KINDS[kind](draft, tensors)
    return Crafted(kind, _plan(mode, draft), draft.words, raw)


def honest_plan(model: Crafted) -> Crafted:
    """Return an honest round of the same model and method, as it may follow a crafted one."""
    training = TrainingSettings(
        learning_rate=0.5,
        batch_size=3,
        bptt_steps=6,
        optimiser=model.plan.training.optimiser,
        optimiser_state=model.plan.training.optimiser_state,
    )
    plan = msgspec.structs.replace(
        model.plan,
        kind="train",
        embedding_fit=None,
        training=training,
        vocabulary=_named(WORDS),
        privacy=msgspec.structs.replace(model.plan.privacy, clipping_norm=CLIP),
    )
    return Crafted("honest", plan, WORDS, initial_parameters(plan.model, 1).numpy())


@dataclass
class _Draft:
    rng: Generator
    model: WordModelSettings
    words: Vocabulary
    training: dict[str, Any]  # of whatever type a setting has
    clip: float = CLIP
    compression: CompressionSettings | None = None

    def pick(self, values: tuple[float, ...]) -> float:
        return float(self.rng.choice(values))


Tensors = dict[str, np.ndarray[Any, np.dtype[np.float32]]]
_ROW = WORDS.encode([SECRET])[0]


def _training(mode: str, rng: Generator) -> dict[str, Any]:
    adam = rng.random() < 0.3
    training: dict[str, Any] = {
        "learning_rate": 0.5,
        "batch_size": 3,
        "bptt_steps": 6,
        "optimiser": "adam" if adam else "sgd",
        "momentum": 0.0 if adam else float(rng.choice([0.0, 0.9])),
        "optimiser_state": "kept" if rng.random() < 0.5 else "fresh",
    }
    if "example" in mode:
        training["example_privacy"] = ExamplePrivacySettings(
            clipping_norm=EXAMPLE_CLIP, noise_multiplier=Z, sampling_rate=1.0, delta=1e-5
        )
        # One step from plain parameters: how far examples move it is arithmetic.
        training |= {"optimiser": "sgd", "momentum": 0.0, "optimiser_state": "fresh"}
    return training


def _plan(mode: str, draft: _Draft) -> Plan:
    privacy: PrivacySettings = LocalNoise(
        clipping_norm=draft.clip, noise_multiplier=Z, delta=1e-5, epsilon_budget=1e9
    )
    if mode == "example":
        privacy = CentralNoise(
            clipping_norm=draft.clip,
            noise_multiplier=Z,
            delta=1e-5,
            epsilon_budget=1e9,
            adjacency="replace-one",
        )
    method: Any = GlobalSettings()
    fits = False
    if mode == "local-personal":
        method = VanillaSettings() if draft.model is TRANSFORMER else DittoSettings()
        fits = draft.compression is None and draft.rng.random() < 0.4
    plan = Plan(
        run=bytes(range(16)).hex(),
        kind="fit_personal" if fits else "train",
        embedding_fit=EmbeddingFitSettings(start_count=1) if fits else None,
        model=draft.model,
        schema_sha256="00" * 32,
        vocabulary=_named(draft.words),
        training=TrainingSettings(**draft.training),
        personalisation=method,
        privacy=privacy,
        cohort_size=2,
        seed=7,
        compression=draft.compression,
    )
    return msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())


def _named(words: Vocabulary) -> VocabularySettings:
    name = "own" if words.words[2:] != shipped_vocabulary(len(words)).words[2:] else SHIPPED_NAME
    return VocabularySettings(name=name, size=len(words), sha256=words.sha256.hex())


def _huge_word(draft: _Draft, tensors: Tensors) -> None:
    """The word's embedding is huge; half the time the weights that read it are 0."""
    tensors["embedding.weight"][_ROW, :2] = draft.pick(_HUGE) * np.array([1, -1])
    if draft.rng.random() < 0.5:
        for name, values in tensors.items():
            if name != "embedding.weight" and values.ndim == 2:
                values[:, :2] = 0


def _huge_readers(draft: _Draft, tensors: Tensors) -> None:
    """The word's embedding and all weights are huge, each within bounds or beyond."""
    size = draft.pick((1e3, 1e5, 1e6, 1e12))
    for name, values in tensors.items():
        if values.ndim == 2 and name != "embedding.weight":
            np.multiply(values, np.float32(size), out=values)
    tensors["embedding.weight"][_ROW] = size


def _zeros(draft: _Draft, tensors: Tensors) -> None:
    """Everything is zero, or everything but the word."""
    for name, values in tensors.items():
        values[:] = 0
        if name == "embedding.weight" and draft.rng.random() < 0.5:
            values[_ROW] = 1


def _subnormal(draft: _Draft, tensors: Tensors) -> None:
    """The word's embedding is below float32's normal range, or the products with it are."""
    tensors["embedding.weight"][_ROW] = draft.pick((1e-45, 1e-40, 1e-30, 1e-20))
    for name, values in tensors.items():
        if values.ndim == 2 and name != "embedding.weight" and draft.rng.random() < 0.5:
            np.multiply(values, np.float32(1e-20), out=values)


def _not_a_number(draft: _Draft, tensors: Tensors) -> None:
    """One word's row holds NaN or infinity."""
    tensors["embedding.weight"][_ROW, 0] = draft.pick((np.nan, np.inf, -np.inf))


def _nan_for_one(draft: _Draft, tensors: Tensors) -> None:
    """Each number is finite; sums over the word's row are infinity minus infinity."""
    row = tensors["embedding.weight"][_ROW]
    row[:] = draft.pick((1e6, 3e38)) * np.resize([1, -1], row.shape)
    for name, values in tensors.items():
        if values.ndim == 2 and name != "embedding.weight":
            values[:] = draft.pick((1e6, 1e10, 3e38))


def _output_bias(draft: _Draft, tensors: Tensors) -> None:
    """The word is all but certain, or all but impossible."""
    tensors["output.bias"][_ROW] = draft.pick((1e6, -1e6, 1e30, -1e30))


def _rates(draft: _Draft, tensors: Tensors) -> None:
    """The step is out of proportion, and so may be what holds it back."""
    draft.training["learning_rate"] = draft.pick(_RATES)
    if "example_privacy" not in draft.training:
        draft.training["weight_decay"] = draft.pick((0.0, 1.0, 1e6, 1e30))
        clip = draft.pick((0.0, 1e-30, 1e6, 1e30))
        draft.training["gradient_clipping_norm"] = clip or None
        draft.training["local_epochs"] = int(draft.rng.choice([1, 3]))
    tensors["embedding.weight"][_ROW] *= np.float32(draft.pick((1.0, 1e3)))


def _chosen_words(draft: _Draft, tensors: Tensors) -> None:
    """The list has words of one person only."""
    draft.words = ONLY_SECRET
    tensors["embedding.weight"][2] *= np.float32(draft.pick((1.0, 1e6)))


def _clips(draft: _Draft, tensors: Tensors) -> None:
    """The clip is out of proportion, and the update travels in a form that could refuse it."""
    draft.clip = draft.pick((1e-30, 1.0, 1e6, 1e30))
    tensors["embedding.weight"][_ROW] = draft.pick(_HUGE)
    draft.compression = _FORMS[int(draft.rng.integers(len(_FORMS)))]


_KINDS: dict[str, Callable[[_Draft, Tensors], None]] = {
    "huge word": _huge_word,
    "huge readers": _huge_readers,
    "zeros": _zeros,
    "subnormal": _subnormal,
    "not a number": _not_a_number,
    "NaN for one word": _nan_for_one,
    "output bias": _output_bias,
    "step sizes": _rates,
    "chosen words": _chosen_words,
    "clips and forms": _clips,
}
