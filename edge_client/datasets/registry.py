"""Every data set by name; a new one is a file with a ``load`` function and a line here."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from edge_client.datasets.character_set import CharacterLoader, CharacterText
from edge_client.datasets.image_set import ImageLoader, ImageSet
from edge_client.datasets.images import cifar, digits
from edge_client.datasets.speech import an4, espeak, fsdd, ljspeech, recordings
from edge_client.datasets.speech_set import SpeechLoader, SpeechSet, gather
from edge_client.datasets.text import (
    folder,
    irc,
    jsonl,
    manual,
    ptb,
    reddit,
    shakespeare,
    sms,
    wikitext2,
)
from edge_client.datasets.text_set import DatasetError, FederatedText, Loader
from models.settings.audio import ClipSettings
from models.text.speech_alphabet import SpeechTextSettings

DATASETS: Mapping[str, Loader] = {
    "manual": manual.load,
    "ptb": ptb.load,
    "wikitext2": wikitext2.load,
    "reddit": reddit.load,
    "sms": sms.load,
    "irc": irc.load,
    "folder": folder.load,
    "jsonl": jsonl.load,
}


IMAGE_SETS: Mapping[str, ImageLoader] = {
    "digits": digits.load,
    "cifar10": cifar.load_cifar10,
    "cifar100": cifar.load_cifar100,
}

CHARACTER_SETS: Mapping[str, CharacterLoader] = {"shakespeare": shakespeare.load}

SPEECH_SETS: Mapping[str, SpeechLoader] = {
    "espeak": espeak.load,
    "espeak-one": espeak.load_one,
    "ljspeech": ljspeech.load_ljspeech,
    "kathleen": ljspeech.load_kathleen,
    "an4": an4.load,
    "fsdd": fsdd.load,
    "recordings": recordings.load,
}

_BY_USER_TIME: Mapping[str, Loader] = {
    name: DATASETS[name] for name in ("manual", "sms", "folder", "jsonl")
} | {"irc": irc.load_by_time}


def load_by_user_time(name: str, path: Path | None = None) -> FederatedText:
    """Load a set with every user's newest fifth held out: a tenth to validate, one to test.

    Raises:
        DatasetError: If the set lacks users or their order, or cannot be loaded.
    """
    if name not in _BY_USER_TIME:
        raise DatasetError(
            f"data set must be one of {_listed(sorted(_BY_USER_TIME))} to be split by each "
            f"user's time, got {name!r}"
        )
    return _BY_USER_TIME[name](path)


def load_dataset(name: str, path: Path | None = None) -> FederatedText:
    """Load a text data set from its official layout.

    The ``path`` is the set's folder or file, or a folder of several sets; ``manual`` needs none.

    Raises:
        DatasetError: If the name is unknown or the set cannot be loaded.
    """
    if name not in DATASETS:
        raise DatasetError(f"data set must be one of {_listed(DATASETS)}, got {name!r}")
    return DATASETS[name](path)


def load_images(name: str, path: Path | None = None) -> ImageSet:
    """Load an image data set, as `load_dataset`; ``digits`` needs no path.

    Raises:
        DatasetError: If the name is unknown or the set cannot be loaded.
    """
    if name not in IMAGE_SETS:
        raise DatasetError(f"data set of images must be one of {_listed(IMAGE_SETS)}, got {name!r}")
    return IMAGE_SETS[name](path)


def load_characters(name: str, path: Path | None = None) -> CharacterText:
    """Load a data set for character models, as `load_dataset`.

    Raises:
        DatasetError: If the name is unknown or the set cannot be loaded.
    """
    if name not in CHARACTER_SETS:
        raise DatasetError(
            f"data set of characters must be one of {_listed(CHARACTER_SETS)}, got {name!r}"
        )
    return CHARACTER_SETS[name](path)


def load_speech(
    name: str,
    path: Path | None = None,
    *,
    clip_settings: ClipSettings,
    text_settings: SpeechTextSettings,
) -> SpeechSet:
    """Load a speech set, every recording checked by its header; ``espeak`` needs no path.

    Raises:
        DatasetError: If the name is unknown or the set cannot be loaded.
    """
    if name not in SPEECH_SETS:
        raise DatasetError(
            f"data set of speech must be one of {_listed(SPEECH_SETS)}, got {name!r}"
        )
    return gather(SPEECH_SETS[name](path), clip_settings=clip_settings, text_settings=text_settings)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
