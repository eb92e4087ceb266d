"""Read a device's own examples as a plan's task wants them: words, letters, images or recordings.

All are split in order, oldest first, by `edge_client.datasets.text_set.split_in_order`. Plans of
kind ``evaluate`` score the newest fifth, and the rest is trained on. Where the plan hides single
sentences, each is held out by its own words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from edge_client.agent.word_lists import word_list
from edge_client.child.own_sounds import OwnSounds
from edge_client.child.own_text import OwnText
from edge_client.datasets.registry import load_speech
from edge_client.datasets.row_parts import cut_rows
from edge_client.datasets.speech_examples import speech_examples
from edge_client.datasets.speech_set import Clip
from edge_client.datasets.text_set import DatasetError, split_in_order
from edge_client.owner.typed_text import TextSettings
from models.plan.plan import Plan, PlanError
from models.plugins.loaded import has_part
from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.plugin import ModelPart
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.tasks.image_classification import LabelledImages
from models.tasks.plugin_task import PluginTask, own_model, plugin_task
from models.tasks.rows import Rows
from models.tasks.speech_examples import SpeechExamples
from models.tasks.unusable_examples import UnusableExamplesError
from models.text.alphabet import encode_characters
from models.text.vocabulary import Vocabulary
from models.vector.archives import ArraysError, read_arrays

_LEAST_CHARACTERS = 2
_PIXEL_AXES = 4


class OwnExamples(Protocol):
    """One person's examples for one round."""

    def training(self) -> Tensor | LabelledImages | SpeechExamples | Rows:
        """Return the examples to train on.

        Raises:
            DatasetError: If there are none.
        """
        ...

    def held_out(self) -> Tensor | LabelledImages | SpeechExamples | Rows:
        """Return the examples to score, which were not trained on this round.

        Raises:
            DatasetError: If nothing is held out; of few examples, nothing is.
        """
        ...

    def delete_trained(self) -> None:
        """Remove what was trained on, where the owner says so; call once the update is sealed."""
        ...


ExamplesReader = Callable[[Path, TextSettings, float], OwnExamples]
"""Reads the examples at a path, within the owner's limits on text, at a time (seconds since 1970).

Raises ``DatasetError`` if they cannot be read."""


def examples_reader(plan: Plan, word_lists: Path) -> ExamplesReader:
    """Return the reader of examples for a plan's task.

    Raises:
        PlanError: If a device has no examples of such a task.
        VocabularyError: If the word list is not the plan's.
    """
    if plan.vocabulary is not None:
        words = word_list(plan.vocabulary, word_lists)
        hides = plan.training.example_privacy is not None
        return lambda data, limits, now: OwnWords(
            OwnText.read(data, limits, now=now, each_alone=hides), words
        )
    if plan.task == "next_character":
        return lambda data, limits, now: OwnCharacters(OwnText.read(data, limits, now=now))
    if plan.task == "image_classification":
        return lambda data, limits, now: OwnImages(read_images(data))
    if plan.task == "speech" and isinstance(plan.model, TransformerTtsSettings):
        voice = plan.model
        return lambda data, limits, now: OwnRecordings.read(data, voice)
    if plan.task == "vocoder" and isinstance(plan.model, VocoderSettings):
        vocoder = plan.model
        return lambda data, limits, now: OwnSounds.read(data, vocoder)
    if has_part(Part.TASKS, plan.task):
        settings, task = own_model(plan.model, plan.task), plugin_task(plan.task)
        return lambda data, limits, now: OwnRows.read(task, data, settings)
    raise PlanError(f'task "{plan.task}" is not one that this device has examples for')


@dataclass(frozen=True)
class OwnWords:
    """A person's text as words of a list: int64 streams, shape ``(tokens,)``."""

    text: OwnText
    words: Vocabulary

    def training(self) -> Tensor:
        """Return the stream to train on."""
        return self.text.training_examples(self.words)

    def held_out(self) -> Tensor:
        """Return the stream to score on."""
        return self.text.held_out_examples(self.words)

    def delete_trained(self) -> None:
        """Remove what was trained on, where the owner says so."""
        self.text.delete_trained()


@dataclass(frozen=True)
class OwnCharacters:
    """A person's text letter by letter, white space as single blanks: int64 ``(characters,)``."""

    text: OwnText

    def training(self) -> Tensor:
        """Return the stream to train on."""
        return _characters(self.text.letters(held_out=False), "train on")

    def held_out(self) -> Tensor:
        """Return the stream to score on."""
        return _characters(self.text.letters(held_out=True), "score on")

    def delete_trained(self) -> None:
        """Remove what was trained on, where the owner says so."""
        self.text.delete_trained()


class OwnImages:
    """A person's labelled images, oldest first; limits on text do not concern them."""

    def __init__(self, images: LabelledImages) -> None:
        train, *held_out = split_in_order(range(len(images)))
        self._images = images
        self._train = list(train)
        self._held_out = [place for part in held_out for place in part]

    def training(self) -> LabelledImages:
        """Return the images to train on."""
        return self._some(self._train, "train on")

    def held_out(self) -> LabelledImages:
        """Return the images to score on."""
        return self._some(self._held_out, "score on")

    def delete_trained(self) -> None:
        """Keep everything: images are the owner's file, and no program's log."""

    def _some(self, places: list[int], purpose: str) -> LabelledImages:
        if not places:
            raise DatasetError(f"the device's images must be at least 1 to {purpose}, got 0")
        return self._images[torch.tensor(places)]


class OwnRecordings:
    """A person's recordings in the order of their names, read when needed; no text limits apply."""

    def __init__(self, clips: Sequence[Clip], voice: TransformerTtsSettings) -> None:
        self._train, *held_out = split_in_order(clips)
        self._held_out = [clip for part in held_out for clip in part]
        self._voice = voice

    @classmethod
    def read(cls, data: Path, voice: TransformerTtsSettings) -> Self:
        """Find a folder's WAV or FLAC files, each beside a text file of its name.

        Raises:
            DatasetError: If there is none, or a file is damaged, unpaired or unfit for the voice.
        """
        found = load_speech("recordings", data, clip_settings=voice.clips, text_settings=voice.text)
        return cls(found.clips, voice)

    def training(self) -> SpeechExamples:
        """Return the clips to train on."""
        return self._some(self._train, "train on")

    def held_out(self) -> SpeechExamples:
        """Return the clips to score on."""
        return self._some(self._held_out, "score on")

    def delete_trained(self) -> None:
        """Keep everything: recordings are the owner's files, and no program's log."""

    def _some(self, clips: Sequence[Clip], purpose: str) -> SpeechExamples:
        if not clips:
            raise DatasetError(f"the device's recordings must be at least 1 to {purpose}, got 0")
        return speech_examples(clips, self._voice)


class OwnRows:
    """A person's examples as a plugin's task reads them, oldest first; no text limits apply."""

    def __init__(self, rows: Rows) -> None:
        self._train, *_ = cut_rows(rows)
        self._held_out = rows[len(self._train) :]

    @classmethod
    def read(cls, task: PluginTask, data: Path, settings: ModelPart) -> Self:
        """Have the task read the data.

        Raises:
            UnusableExamplesError: If they are none that it can use.
            PluginError: If the task is broken.
        """
        try:
            rows = task.read(data, settings)
        except (UnusableExamplesError, OSError):
            raise
        # Somebody else's code on a damaged file; its own words might repeat the data.
        except Exception as error:
            raise PluginError(f"reading the data raised {type(error).__name__}") from error
        if not isinstance(rows, Rows):
            raise PluginError(f"a plugin's task must read Rows, got {type(rows).__name__}")
        return cls(rows)

    def training(self) -> Rows:
        """Return the examples to train on."""
        return _some_rows(self._train, "train on")

    def held_out(self) -> Rows:
        """Return the examples to score on."""
        return _some_rows(self._held_out, "score on")

    def delete_trained(self) -> None:
        """Keep everything: the file is the owner's, and no program's log."""


def read_images(path: Path) -> LabelledImages:
    """Read labelled images from an ``.npz`` file, oldest first; nothing is unpickled.

    ``pixels`` is uint8 ``(images, height, width, channels)``, ``labels`` integers ``(images,)``.

    Raises:
        DatasetError: If the file is missing or damaged, or does not hold such arrays.
    """
    try:
        pixels, labels = read_arrays(path, ("pixels", "labels")).values()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None
    except ArraysError as error:
        raise DatasetError(f"{path} is no .npz file of images: {error}") from None
    if pixels.dtype != np.uint8 or pixels.ndim != _PIXEL_AXES:
        raise DatasetError(
            f"pixels of {path} must be uint8 of shape (images, height, width, channels), got "
            f"{pixels.dtype} of shape {pixels.shape}"
        )
    if labels.dtype.kind not in "iu" or labels.shape != (len(pixels),):
        raise DatasetError(
            f"labels of {path} must be {len(pixels)} whole numbers, got {labels.dtype} of shape "
            f"{labels.shape}"
        )
    return LabelledImages(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64)))


def _some_rows(rows: Rows, purpose: str) -> Rows:
    if not len(rows):
        raise DatasetError(f"the device's examples must be at least 1 to {purpose}, got 0")
    return rows


def _characters(text: str, purpose: str) -> Tensor:
    if len(text) < _LEAST_CHARACTERS:
        raise DatasetError(
            f"the device's text must have at least {_LEAST_CHARACTERS} characters to {purpose}, "
            f"got {len(text)}"
        )
    return torch.tensor(encode_characters(text), dtype=torch.int64)
