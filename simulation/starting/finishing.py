"""What a start ends in: figures, a release that runs start from, and a packed file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from models.compression.packed_model import (
    PackedDescription,
    pack,
    packed_digest,
    rounded,
)
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan
from models.settings.model import schema_of
from models.tasks.next_word import NextWord
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector
from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.noise.settings import NoNoise
from server.aggregation.settings import MeanSettings
from server.config.plans import make_plan
from server.config.rounds import RoundSettings
from server.config.settings import FederationSettings
from server.config.word_list import WordListSettings
from server.releases.files import NewRelease, ReleaseFolder
from simulation.starting.training import TRAINING, Recipe

Measured = Mapping[str, float]
"""Figures of a start, by text and name: ``sms.top3_recall``."""


class Learnt(NamedTuple):
    """A start after its last step; ``parameters`` are flat float32, shape ``(elements,)``."""

    recipe: Recipe
    words: WordListSettings
    vocabulary: Vocabulary
    parameters: FlatVector

    @property
    def rounded(self) -> FlatVector:
        """Return the parameters as a packed file gives them back."""
        return rounded(schema_of(self.recipe.model), self.parameters)


_GUARANTEE = "none: learnt from public text, whose people no guarantee covers"


def measure(
    recipe: Recipe, parameters: FlatVector, texts: Mapping[str, Sequence[Tensor]]
) -> dict[str, float]:
    """Return what a model makes of each text's streams."""
    network = build_network(recipe.model)
    load_parameters(network, schema_of(recipe.model), torch.from_numpy(parameters))
    task = NextWord()
    return {
        f"{name}.{figure}": value
        for name, streams in texts.items()
        for figure, value in task.evaluate(network, streams).figures(of_words=True).items()
    }


def release(folder: Path, start: Learnt, figures: Measured) -> Path:
    """Write the release of a start and return its folder, which ``start_from`` names.

    Raises:
        OSError: If the disk is full.
    """
    releases = ReleaseFolder(folder)
    new = NewRelease(
        round_number=0,
        attempt=0,
        plan=_plan(start),
        vocabulary=start.vocabulary,
        parameters=start.parameters,
        previous_sha256=bytes(32),
        metrics=dict(figures),
        guarantee=_GUARANTEE,
    )
    releases.build(new, None)
    return releases.publish(0)


def write_packed(path: Path, start: Learnt, figures: Measured) -> int:
    """Write a start as a packed file and return its bytes; ``figures`` are of what it gives back.

    Raises:
        PackedModelError: If it would be too large.
        OSError: If it cannot be written.
    """
    recipe = start.recipe
    description = PackedDescription(
        model=recipe.model,
        vocabulary=start.words.describe(start.vocabulary),
        language=recipe.language,
        texts=recipe.texts,
        epochs=recipe.epochs,
        seed=recipe.seed,
        figures=dict(figures),
        parameters_sha256=packed_digest(start.rounded),
    )
    packed = pack(description, start.parameters)
    write_atomically(path, packed, mode=READABLE)
    return len(packed)


def _plan(start: Learnt) -> Plan:
    """Return the plan that says what the release is: one participant, no noise."""
    recipe = start.recipe
    settings = FederationSettings(
        seed=recipe.seed,
        model=recipe.model,
        vocabulary=start.words,
        training=msgspec.structs.replace(TRAINING, local_epochs=recipe.epochs),
        privacy=NoNoise(clipping_norm=1.0),
        aggregation=MeanSettings(),
        rounds=RoundSettings(cap=1, cohort_size=1, quorum=1, deadline_s=1.0),
    )
    run = recipe.text_sha256[:32]
    return make_plan(settings, run, cohort_size=1, vocabulary=start.vocabulary)
