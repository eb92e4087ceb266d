"""A disk without room leaves what was there, and the command says what to do, in one line."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from export import cli
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.making.speech import VoiceKind
from export.serve import cli as serve_cli
from models.text.vocabulary import Vocabulary
from privacy.foundation.full_disk import naming_the_disk
from tests.export.people_scene import PEOPLE, release_with_people
from tests.export.serve.running_server import serving_folder
from tests.export.voices import speech_plan, speech_release

Command = Callable[[list[str]], int]


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, bundle_folder: Path, vocabulary: Vocabulary
) -> Path:
    """A folder with two runs, their bundles, and a serving folder of one of them."""
    folder = tmp_path_factory.mktemp("made")
    people, voice = folder / "run", folder / "voices"
    release = release_with_people(people, vocabulary)
    export_bundle(KeyboardKind(), release, folder / "keyboard.zip")
    spoken = speech_release(voice, speech_plan(), stop=1.0)
    export_bundle(VoiceKind(), spoken, folder / "voice.zip")
    serving_folder(folder / "serving", bundle_folder, more=["--metric", "perplexity"])
    (folder / "people").mkdir()
    export_people(release, [(PEOPLE[0], folder / "people" / f"{PEOPLE[0]}.zip")])
    return folder


def no_room_for(path: str) -> Callable[..., int]:
    """Return an ``os.open`` for which one kind of new file lies on a device without room."""
    opened = os.open

    def open_without_room(name: str | Path, flags: int, *more: int, **named: int) -> int:
        is_new = flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and path in str(name)
        return opened("/dev/full", os.O_WRONLY) if is_new else opened(name, flags, *more, **named)

    return open_without_room


def refuse(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


EXPORTS: dict[str, tuple[Command, list[str]]] = {
    "keyboard": (cli.main, ["keyboard", "run", "--out", "new.zip"]),
    "keyboard's folder": (cli.main, ["keyboard", "run", "--out", "new"]),
    "voice": (cli.main, ["speech", "voices", "--out", "new.zip"]),
    "quantised keyboard": (cli.main, ["quantise", "keyboard.zip", "--out", "new.zip"]),
    "quantised voice": (cli.main, ["quantise", "voice.zip", "--out", "new"]),
    "personal file": (
        cli.main,
        ["personal", "run", "--client", PEOPLE[0], "--out", "new.zip"],
    ),
}
PROMOTED = ["promote", "serving", "--metric"]
PROMOTIONS: dict[str, tuple[Command, list[str]]] = {
    "promotion": (serve_cli.main, [*PROMOTED, "perplexity", "keyboard.zip", "--people", "people"]),
    "voice's promotion": (serve_cli.main, [*PROMOTED, "mel_l1", "voice.zip"]),
}


def listing(folder: Path) -> dict[str, bytes]:
    """Return everything but the locks, which hold nothing."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        if not path.name.endswith(".lock")
    }


def fails(
    asked: tuple[Command, list[str]], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, words = asked
    paths = [str(folder / word) if (folder / word).exists() else word for word in words]
    if "--out" in paths:
        place = paths.index("--out") + 1
        paths[place] = str(folder / paths[place])
    before = listing(folder)
    capsys.readouterr()

    assert command(paths) == 1

    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert re.search(r"the disk of .* is full \(\d+ MiB free\); make room and run the same", line)
    assert listing(folder) == before


@pytest.mark.parametrize("what", EXPORTS)
def test_an_export_leaves_nothing(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    monkeypatch.setattr(os, "write", refuse)

    fails(EXPORTS[what], made, capsys)


@pytest.mark.parametrize("when", ["copying", "at the end"])
@pytest.mark.parametrize("what", PROMOTIONS)
def test_a_promotion_leaves_what_is_served(
    *,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
    when: str,
) -> None:
    folder = tmp_path / "made"
    shutil.copytree(made, folder)
    for shelf in (folder / "serving", folder / "serving" / "voice"):
        for name in ("versions", "people"):  # A promotion may make these, empty.
            (shelf / name).mkdir(parents=True, exist_ok=True)
    if when == "copying":
        monkeypatch.setattr(os, "sendfile", refuse)
    else:
        monkeypatch.setattr(os, "open", no_room_for("versions.json"))

    fails(PROMOTIONS[what], folder, capsys)


def test_other_failures_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), naming_the_disk(tmp_path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
