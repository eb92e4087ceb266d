"""The Free Spoken Digit Dataset: six speakers who say the ten digits fifty times each, at 8 kHz.

Files are named ``<digit>_<speaker>_<number>.wav`` or ``.flac``, in a folder ``recordings`` or a
zip archive of it. The text is the digit's name; numbers 0 to 4 are the official test part.

References:
    Jackson et al., "Jakobovski/free-spoken-digit-dataset", v1.0.8, 2018.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from edge_client.datasets.sound_file import SOUND_SUFFIXES, SoundFile
from edge_client.datasets.speech_set import Recording, refuse
from edge_client.datasets.text_set import DatasetError
from models.vector.archives import ZIP_DAMAGE, open_zip

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>[^_]+)_(?P<number>\d+)", re.ASCII)
_TEST_NUMBERS = 5
_PLACES = ("recordings.zip", "recordings")
_LARGEST_BYTES = 4 * 2**20
"""Largest member of an archive that is unpacked: 20 s of 16-bit stereo at 48 kHz."""


def load(path: Path | None) -> list[Recording]:
    """Load the digits from ``path``: the archive, the folder ``recordings``, or one with them.

    Raises:
        DatasetError: If neither is there, the archive is damaged, or a name is no digit's.
    """
    if path is None:
        raise DatasetError("fsdd needs a path: give --data or set SOTTO_DATA to a file or folder")
    place = _find(path)
    sounds = sorted(
        _members(place) if place.is_file() else _files(place), key=lambda sound: sound.path
    )
    named = [(sound, _NAME.fullmatch(sound.path.stem)) for sound in sounds]
    refuse(
        [sound.label for sound, match in named if not match],
        "recordings must be named <digit>_<speaker>_<number>",
    )
    return [
        Recording(
            name=sound.path.stem,
            speaker=match["speaker"],
            written=_DIGITS[int(match["digit"])],
            sound=sound,
            is_test=int(match["number"]) < _TEST_NUMBERS,
        )
        for sound, match in named
        if match
    ]


def _find(path: Path) -> Path:
    if path.is_file() or path.name == _PLACES[1]:
        return path
    for folder in (path, path / "fsdd", path / "free-spoken-digit-dataset"):
        for name in _PLACES:
            if (folder / name).exists():
                return folder / name
    raise DatasetError(f"fsdd: no {' or '.join(_PLACES)} in {path} or {path / 'fsdd'}")


def _files(folder: Path) -> Iterator[SoundFile]:
    if not folder.is_dir():
        raise DatasetError(f"fsdd: {folder} must be a folder of recordings")
    for file in folder.iterdir():
        if file.suffix in SOUND_SUFFIXES:
            yield SoundFile(file)


def _members(archive: Path) -> Iterator[SoundFile]:
    """Yield the recordings of an archive, all in memory: 12 MB, and open files do not travel."""
    try:
        with open_zip(archive) as members:
            for info in members.infolist():
                name = PurePosixPath(info.filename)
                if name.suffix in SOUND_SUFFIXES:
                    if info.file_size > _LARGEST_BYTES:
                        raise DatasetError(
                            f"{archive}: {name} must have at most {_LARGEST_BYTES} bytes, got "
                            f"{info.file_size}"
                        )
                    yield SoundFile(archive / name, members.read(info))
    except OSError as error:
        raise DatasetError(f"{archive} cannot be read: {error.strerror or error}") from None
    except ZIP_DAMAGE as error:
        raise DatasetError(f"{archive} is damaged: {error}") from None
