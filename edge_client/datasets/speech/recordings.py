"""A folder of the reader's own recordings: each WAV or FLAC file beside a text file of its name.

Files directly in the folder are one speaker's, named after it; each subfolder is another's.
"""

from collections.abc import Iterator
from pathlib import Path

from edge_client.datasets.reading import read_text
from edge_client.datasets.sound_file import SOUND_SUFFIXES, SoundFile
from edge_client.datasets.speech_set import Recording, refuse
from edge_client.datasets.text_set import DatasetError


def load(path: Path | None) -> list[Recording]:
    """Load a folder of recordings with their texts, passing over dotted names.

    Raises:
        DatasetError: If there is no folder, no recording, or a recording or text without the other.
    """
    if path is None:
        raise DatasetError("recordings needs a path: give --data or set SOTTO_DATA")
    if not path.is_dir():
        raise DatasetError(f"recordings: {path} must be a folder of WAV or FLAC files with texts")
    files = list(_files_by_speaker(path))
    sounds = [entry for entry in files if entry[1].suffix.lower() in SOUND_SUFFIXES]
    texts = {_stem(file) for _, file in files if file.suffix == ".txt"}
    silent = texts - {_stem(file) for _, file in sounds}
    faults = [f"{file} has no {file.stem}.txt" for _, file in sounds if _stem(file) not in texts]
    faults += [f"{stem}.txt has no {stem.name}.wav or .flac" for stem in sorted(silent)]
    refuse(faults, "files lack their other half")
    if not sounds:
        raise DatasetError(f"recordings: {path} must hold a WAV or FLAC file, got none")
    return [
        Recording(
            name=str(file.relative_to(path)),
            speaker=speaker,
            written=" ".join(read_text(file.with_suffix(".txt")).split()),
            sound=SoundFile(file),
        )
        for speaker, file in sounds
    ]


def _files_by_speaker(path: Path) -> Iterator[tuple[str, Path]]:
    for entry in sorted(path.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            for file in sorted(entry.rglob("*")):
                if file.is_file() and not file.name.startswith("."):
                    yield entry.name, file
        else:
            yield path.resolve().name, entry


def _stem(file: Path) -> Path:
    return file.with_suffix("")
