"""LJ Speech, and other sets in its layout: ``metadata.csv`` and ``wavs/<id>.wav`` or ``.flac``.

Each line of ``metadata.csv`` is ``id|text|normalised text``, without quoting; the third column is
taken where it is there. One person speaks.

References:
    Ito and Johnson, "The LJ Speech Dataset", 2017, https://keithito.com/LJ-Speech-Dataset.
    CMU ARCTIC prompts read by "Kathleen", from the Rhasspy project: the same layout.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from edge_client.datasets.reading import find_folder, read_text
from edge_client.datasets.sound_file import SOUND_SUFFIXES, SoundFile
from edge_client.datasets.speech_set import Recording, refuse

METADATA = "metadata.csv"
_NAME = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)?")


def load_ljspeech(path: Path | None) -> list[Recording]:
    """Load LJ Speech, or one's own clips in its layout, from ``path`` or a folder of sets.

    Raises:
        DatasetError: If the folder or a file is missing, or a line is broken; names the lines.
    """
    folder = find_folder(path, "ljspeech", ("ljspeech", "LJSpeech-1.1"), (METADATA,))
    return _recordings(folder, folder.resolve().name)


def load_kathleen(path: Path | None) -> list[Recording]:
    """Load the Kathleen voice from ``path`` or a folder of sets.

    Raises:
        DatasetError: As `load_ljspeech`.
    """
    folder = find_folder(path, "kathleen", ("kathleen",), (METADATA,))
    return _recordings(folder, "kathleen")


def read_metadata(file: Path) -> list[tuple[str, ...]]:
    """Return the fields of each line, two or three; blank lines are passed over.

    Raises:
        DatasetError: If the file cannot be read, or a line has another number of fields, no text,
            or a first field that is no name of a file; names the lines.
    """
    rows, faults = [], []
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if line.strip():
            row = tuple(field.strip() for field in line.split("|"))
            rows.append(row)
            if fault := _fault(row):
                faults.append(f"line {number} {fault}")
    refuse(faults, f"lines of {file} are broken, each must be id|text or id|text|normalised text")
    return rows


def sound_at(stem: Path, suffixes: Sequence[str] = SOUND_SUFFIXES) -> SoundFile:
    """Return the sound of a name without its ending; the first ending where none is there."""
    files = [stem.with_name(stem.name + suffix) for suffix in suffixes]
    return SoundFile(next((file for file in files if file.is_file()), files[0]))


def _recordings(folder: Path, speaker: str) -> list[Recording]:
    return [
        Recording(name, speaker, rest[-1] or rest[0], sound_at(folder / "wavs" / name))
        for name, *rest in read_metadata(folder / METADATA)
    ]


def _fault(row: Sequence[str]) -> str | None:
    if len(row) not in (2, 3):
        return f"has {len(row)} fields"
    if not _NAME.fullmatch(row[0]):
        return "begins with no name of a file"
    return None if row[1] or row[-1] else "has no text"
