"""A keyboard that is loaded through the door suggests what the command suggests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sotto
from export.cli import main
from models.text.vocabulary import Vocabulary
from tests.export.conftest import WORDS
from tests.export.people_scene import release_with_people

# Stands for an installation of sotto[export] alone.
_ONLY_EXPORT = """
import sys
for name in ("torch", "matplotlib", "opacus", "optuna", "scipy", "sqlalchemy", "soundfile",
             "num2words", "zstandard", "dp_accounting", "sklearn"):
    sys.modules[name] = None
import sotto
"""
_SUGGEST = """
print(*[one.word for one in sotto.Keyboard.load(sys.argv[1]).suggest("the")])
"""
_PERSON = """
from export.cli import main
try:
    sotto.personal(sys.argv[1], "ada.zip", client="ada")
except ImportError as error:
    print(error)
print(main(["personal", sys.argv[1], "--client", "ada", "--out", "ada.zip"]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def bundle(run: sotto.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bundles") / "keyboard.zip"
    run.export(target)
    return target


def _commanded(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["suggestions"]


@pytest.mark.parametrize("text", ["", "the ", "see the t", "call 12", "The end. I"])
def test_a_keyboard_suggests_what_the_command_does(
    bundle: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keyboard = sotto.Keyboard.load(bundle)

    found = keyboard.suggest(text, count=4)

    told = [{"word": one.word, "probability": one.probability} for one in found]
    assert told == _commanded(capsys, "suggest", str(bundle), text, "--top", "4")
    assert keyboard.suggest(text, count=1) == found[:1]


def test_a_run_exports_the_bytes_of_the_command(
    run: sotto.Run, bundle: Path, tmp_path: Path
) -> None:
    assert main(["keyboard", str(run.folder), "--out", str(tmp_path / "b.zip"), "--json"]) == 0

    assert bundle.read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_person_has_the_keyboard_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, shared = tmp_path / "run", tmp_path / "shared.zip"
    release_with_people(source, Vocabulary(WORDS))
    assert main(["keyboard", str(source), "--out", str(shared)]) == 0

    made = sotto.personal(source, tmp_path / "ada.zip", client="ada")

    theirs = tmp_path / "command.zip"
    assert main(["personal", str(source), "--client", "ada", "--out", str(theirs)]) == 0
    assert (tmp_path / "ada.zip").read_bytes() == theirs.read_bytes()
    assert made["file"] == str(tmp_path / "ada.zip")
    found = sotto.Keyboard.load(shared, person=tmp_path / "ada.zip").suggest("we ")
    told = [{"word": one.word, "probability": one.probability} for one in found]
    assert told == _commanded(capsys, "suggest", str(shared), "we ", "--person", str(theirs))


def _with_export_alone(script: str, source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _ONLY_EXPORT + script, str(source)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.slow
def test_what_reads_a_release_needs_torch_and_names_the_extra(tmp_path: Path) -> None:
    release_with_people(tmp_path / "run", Vocabulary(WORDS))

    done = _with_export_alone(_PERSON, tmp_path / "run", tmp_path)

    source = f"to read {tmp_path / 'run'}, which is no bundle"
    assert done.stdout == f"sotto.personal needs torch {source}; install sotto[export,train]\n"
    assert done.stderr == "sotto-export: torch is missing; install sotto[export,train]\n1\n"


@pytest.mark.slow
def test_a_keyboard_needs_only_the_extra_export(bundle: Path, tmp_path: Path) -> None:
    done = _with_export_alone(_SUGGEST, bundle, tmp_path)

    assert done.returncode == 0, done.stderr
    expected = [one.word for one in sotto.Keyboard.load(bundle).suggest("the")]
    assert done.stdout.split() == expected


def test_what_is_no_keyboard_is_refused(tmp_path: Path, bundle: Path, run: sotto.Run) -> None:
    (tmp_path / "text.zip").write_text("no archive")

    for path in (tmp_path, tmp_path / "absent", tmp_path / "text.zip", run.folder):
        with pytest.raises((ValueError, OSError), match=str(path)):
            sotto.Keyboard.load(path)
    with pytest.raises(ValueError, match="one of another kind"):
        sotto.Voice.load(bundle)
    with pytest.raises(ValueError, match=r"^count must be >= 1, got 0"):
        sotto.Keyboard.load(bundle).suggest("a", count=0)
    with pytest.raises(ValueError, match="client must say whose"):
        sotto.personal(run.folder, tmp_path / "p.zip")
