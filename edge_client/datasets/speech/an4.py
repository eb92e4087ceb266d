"""AN4: 948 training and 130 test answers to a census by 84 speakers, at 16 kHz.

Read from the official layout (``etc/an4_{train,test}.fileids`` and ``.transcription``, sound in
``wav/``), or from ``metadata.csv`` with lines ``speaker/id|TEXT|speaker`` and ``wavs/``.

References:
    Acero, "Acoustical and Environmental Robustness in Automatic Speech Recognition", CMU, 1990;
    http://www.speech.cs.cmu.edu/databases/an4/.
"""

import re
from pathlib import Path

from edge_client.datasets.reading import find_file, read_text
from edge_client.datasets.sound_file import SOUND_SUFFIXES
from edge_client.datasets.speech.ljspeech import METADATA, read_metadata, sound_at
from edge_client.datasets.speech_set import Recording, refuse
from edge_client.datasets.text_set import DatasetError

_OFFICIAL = "etc/an4_train.fileids"
_LINE = re.compile(r"(?:<s>)?(?P<text>[^<>()]*)(?:</s>)?\s*\((?P<name>[^()\s]+)\)")
_SUFFIXES = (".sph", *SOUND_SUFFIXES)


def load(path: Path | None) -> list[Recording]:
    """Load AN4 from ``path``: its folder, or a folder with ``an4`` in it.

    Raises:
        DatasetError: If a file is missing, or a line is broken; names the lines.
    """
    file = find_file(path, "an4", ("an4",), (METADATA, _OFFICIAL))
    if file.suffix == ".fileids":
        etc = file.parent
        train = _official(etc, "an4_train", is_test=False)
        has_test = (etc / "an4_test.fileids").is_file()
        return train + (_official(etc, "an4_test", is_test=True) if has_test else [])
    rows = read_metadata(file)
    refuse(
        [row[0] for row in rows if len(row) != 3 or not row[2]],
        f"lines of {file} are broken, each must be speaker/id|TEXT|speaker",
    )
    return [
        Recording(name, speaker, text, sound_at(file.parent / "wavs" / name))
        for name, text, speaker in rows
    ]


def _official(etc: Path, part: str, *, is_test: bool) -> list[Recording]:
    """Return a part of the official layout; the folder of a recording is its speaker."""
    texts = _transcription(etc / f"{part}.transcription")
    file = etc / f"{part}.fileids"
    ids = [Path(line.strip()) for line in read_text(file).splitlines() if line.strip()]
    if outside := [place for place in ids if place.is_absolute() or ".." in place.parts]:
        raise DatasetError(f"{file} must name files below wav/, got {len(outside)} that are not")
    missing = [place.name for place in ids if place.name not in texts]
    refuse(missing, f"recordings of {file} have no line in {part}.transcription")
    return [
        Recording(
            name=f"{place.parent.name}/{place.name}",
            speaker=place.parent.name,
            written=texts[place.name],
            sound=sound_at(etc.parent / "wav" / place, _SUFFIXES),
            is_test=is_test,
        )
        for place in ids
    ]


def _transcription(file: Path) -> dict[str, str]:
    texts, faults = {}, []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if found := _LINE.fullmatch(line.strip()):
            texts[found["name"]] = found["text"].strip()
        elif line.strip():
            faults.append(f"line {number}")
    refuse(faults, f"lines of {file} are broken, each must be TEXT (id)")
    return texts
