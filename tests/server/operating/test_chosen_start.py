"""``sotto-server init --start``: none, a path, a shipped start's name, and those it refuses."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from models.compression.packed_model import read_packed
from models.networks.flat_parameters import initial_parameters
from models.plan.plan import VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.text.vocabulary import shipped_vocabulary
from server.cli import main
from server.config.chosen_start import with_start
from server.config.federation import parse_config, preset_text, read_config
from server.config.plans import make_plan
from server.releases.starting_model import starting_parameters
from tests.packed_start import write_packed_start

TINY = "keyboard-tiny"
MODEL = GruLmSettings(vocabulary_size=2000, hidden_size=64)


def write_start(path: Path, model: GruLmSettings = MODEL, words_sha256: str | None = None) -> Path:
    """Write a packed start of drawn parameters, for the words of the small preset."""
    parameters = np.random.default_rng(7).standard_normal(schema_of(model).element_count)
    flat = parameters.astype(np.float32)
    listed = shipped_vocabulary(2000).sha256.hex() if words_sha256 is None else words_sha256
    words = VocabularySettings(name="plays", size=2000, sha256=listed)
    return write_packed_start(path, model, words, flat, language="de")


def started_in(folder: Path) -> torch.Tensor:
    """Return the parameters with which the first start of a founded federation begins."""
    config = read_config(folder / "federation.toml")
    return starting_parameters(config, make_plan(config, "0" * 32))


@pytest.fixture
def ships_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the installation hold an English start of the small preset's size."""
    folder = tmp_path / "package"
    folder.mkdir()
    monkeypatch.setattr("models.data.__file__", str(folder / "__init__.py"))
    return write_start(folder / "english-start.sotto")


@pytest.mark.slow
def test_a_federation_starts_from_the_name_of_a_shipped_start(
    tmp_path: Path, ships_a_start: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "f"

    assert main(["init", str(folder), "--preset", TINY, "--start", "english"]) == 0

    assert "it starts from english, which its first start publishes" in capsys.readouterr().out
    # The name alone: the package may lie elsewhere after an upgrade.
    assert 'start_from = "english"\n' in (folder / "federation.toml").read_text()
    assert torch.equal(started_in(folder), torch.tensor(read_packed(ships_a_start).parameters))


@pytest.mark.slow
def test_a_federation_starts_from_a_path_taken_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_start(tmp_path / "mine.sotto")

    assert main(["init", "f", "--preset", TINY, "--start", "mine.sotto"]) == 0

    assert torch.equal(started_in(tmp_path / "f"), torch.tensor(read_packed(file).parameters))


@pytest.mark.slow
def test_none_draws_the_start_although_the_settings_name_one(tmp_path: Path) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text(f"start_from = 'elsewhere'  # once\n{preset_text(TINY)}")
    folder = tmp_path / "f"

    assert main(["init", str(folder), "--config", str(settings)]) == 1
    assert main(["init", str(folder), "--config", str(settings), "--start", "none"]) == 0

    assert "start_from" not in (folder / "federation.toml").read_text()
    assert torch.equal(started_in(folder), initial_parameters(MODEL, 1))


@pytest.mark.slow
def test_nothing_but_the_start_changes_in_the_settings(tmp_path: Path, ships_a_start: Path) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text(f'start_from = "elsewhere"\n{preset_text(TINY)}')
    folder = tmp_path / "f"

    assert main(["init", str(folder), "--config", str(settings), "--start", "english"]) == 0

    text = (folder / "federation.toml").read_text()
    assert text.replace('"english"', '"elsewhere"') == settings.read_text()
    before = parse_config(preset_text(TINY), "the preset")
    assert parse_config(text, "it") == msgspec.structs.replace(before, start_from="english")


def test_a_start_that_cannot_be_replaced_safely_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text(f'"start_from" = "elsewhere"\n{preset_text(TINY)}')
    founding = ["init", str(tmp_path / "f"), "--config", str(settings)]

    assert main([*founding, "--start", "english"]) == 1

    assert "start_from is written in a way that cannot be replaced" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("model", "words", "told"),
    [
        (MODEL, "a" * 64, 'another: plays of 2000 words with digest aaaaaaaaaaaa, of language'),
        (
            GruLmSettings(vocabulary_size=2000, hidden_size=32),
            None,
            "embedding.weight of shape (2000, 64), but PATH has (2000, 32); set [model]",
        ),
    ],
    ids=["list", "width"],
)  # fmt: skip
def test_a_start_of_another_kind_says_what_differs_and_founds_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    model: GruLmSettings,
    words: str | None,
    told: str,
) -> None:
    file = write_start(tmp_path / "other.sotto", model, words)
    founding = ["init", str(tmp_path / "f"), "--preset", TINY]

    assert main([*founding, "--start", str(file)]) == 1

    assert told.replace("PATH", str(file)) in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "f").exists()


def test_a_start_of_another_language_with_the_same_list_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "words.txt").write_bytes(shipped_vocabulary(2000).to_bytes())
    file = write_start(tmp_path / "german.sotto")
    settings = tmp_path / "french.toml"

    def founded(language: str) -> int:
        listed = f'path = "{tmp_path}/words.txt"\nlanguages = ["{language}"]'
        settings.write_text(preset_text(TINY).replace('name = "english-10k"', listed))
        folder = str(tmp_path / language)
        return main(["init", folder, "--config", str(settings), "--start", str(file)])

    assert founded("fr") == 1
    told = capsys.readouterr().err
    assert f'of [vocabulary], "fr"; {file} is of "de"' in " ".join(told.split())
    assert not (tmp_path / "fr").exists()
    assert founded("de") == 0


@pytest.mark.parametrize("kept", [0, 1000], ids=["empty", "cut"])
def test_a_damaged_start_is_told_and_founds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: int
) -> None:
    file = write_start(tmp_path / "start.sotto")
    file.write_bytes(file.read_bytes()[:kept])
    founding = ["init", str(tmp_path / "f"), "--preset", TINY]

    assert main([*founding, "--start", str(file)]) == 1

    assert f"{file} is no packed model, or a damaged one" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


def test_a_start_that_this_installation_lacks_is_told(
    tmp_path: Path, ships_a_start: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ships_a_start.unlink()

    assert main(["init", str(tmp_path / "f"), "--preset", TINY, "--start", "english"]) == 1

    assert "got 'english' without its file" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("preset", ["keyboard", "keyboard-central"])
def test_what_a_preset_says_of_its_start_goes_with_it(preset: str) -> None:
    settings = preset_text(preset)
    (line,) = [line for line in settings.splitlines() if line.startswith("start_from")]

    # No comment on the English start is left behind: these lines alone differ.
    assert with_start(settings, "none", preset) == settings.replace(f"{line}\n", "")
    assert "#" in line
    before, _, _ = settings.partition(line)
    assert not before.rstrip("\n").splitlines()[-1].startswith("#")
