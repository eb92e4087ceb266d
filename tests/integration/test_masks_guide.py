"""The guide to masks says what its commands print, of settings that found a federation."""

import re
import tomllib
from pathlib import Path

import pytest

import privacy.cli
import server.cli
from edge_client.owner.floor import read_floor
from edge_client.owner.starting_floor import write_starting_floor
from privacy.noise.masked_settings import MaskedNoise
from server.config.federation import parse_config

PAGE = (Path(__file__).parents[2] / "docs" / "let-nobody-see-an-update.md").read_text()
SETTINGS, FLOOR, START = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def printed_after(line: str) -> str:
    """Return what the page shows below a command."""
    start = PAGE.index(f"$ {line}\n") + len(f"$ {line}\n")
    return re.split(r"^(?:\$ |```)", PAGE[start:], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize(
    "line",
    [
        "sotto-privacy explain masked.toml",
        "sotto-privacy noise --mode masked --rounds 100 --target-epsilon 8 --delta 1e-4",
    ],
)
def test_figures_of_the_guide_are_what_its_commands_print(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("masked.toml").write_text(SETTINGS)

    assert privacy.cli.main(line.split()[1:]) == 0

    assert capsys.readouterr().out == printed_after(line)


def test_settings_of_the_guide_found_a_federation_that_sends_for_a_helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("masked.toml").write_text(SETTINGS)
    line = "sotto-server init federation --config masked.toml --hostname fl.example.org"

    assert server.cli.main(line.split()[1:]) == 0

    assert capsys.readouterr().out == printed_after(line)
    config = parse_config(SETTINGS, "masked.toml")
    assert isinstance(config.privacy, MaskedNoise)
    least = config.privacy.least_contributors(config.rounds.quorum)
    assert f"--least-contributors {least} " in PAGE


def test_the_trial_of_the_guide_is_what_its_changes_make_of_the_settings() -> None:
    text = SETTINGS
    (changes,) = re.findall(r"To try all of this .*? set (.*?)\. That", PAGE, re.DOTALL)
    for name, value in re.findall(r"`([a-z_]+) = ([^`]+)`", changes):
        text, count = re.subn(rf"^{name} = \S+", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name

    config = parse_config(text, "trial")

    assert (config.rounds.cohort_size, config.rounds.quorum, config.rounds.cap) == (3, 3, 3)


def test_the_floor_has_the_line_that_the_guide_uncomments_and_the_settings_the_new_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "floor.toml"
    write_starting_floor(path, helper="ab" * 32)
    assert f"# {FLOOR}" in path.read_text()

    path.write_text(path.read_text().replace(f"# {FLOOR}", FLOOR))

    assert read_floor(path).sums == "masked"
    assert tomllib.loads(START + SETTINGS)["start_from"].endswith("releases/latest")
