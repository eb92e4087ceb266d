"""The guide to masks says what its commands print, of settings that found a federation."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest

import privacy.cli
import server.cli
import server.helper.cli
from edge_client.owner.floor import read_floor
from edge_client.owner.floor_in_words import floor_in_words
from edge_client.owner.starting_floor import write_starting_floor
from privacy.noise.masked_settings import MaskedNoise
from server.config.federation import parse_config

PAGE = (Path(__file__).parents[2] / "docs" / "let-nobody-see-an-update.md").read_text()
PROGRAMS = {"sotto-server": server.cli.main, "sotto-helper": server.helper.cli.main}
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


def without_digests(text: str, root: Path) -> str:
    """Return what a command prints without what differs from day to day and place to place."""
    text = re.sub(r"[0-9a-f]{64}|\d{4}-\d\d-\d\d [0-9:+]{14}", "...", text)
    return text.replace(f"{root}/", "")


def test_two_parties_who_follow_the_guide_have_a_federation_and_its_helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("masked.toml").write_text(SETTINGS)
    Path("stick").mkdir()
    lines = re.findall(r"^\$ (.*)$", PAGE[: PAGE.index("$ sotto-helper run")], re.MULTILINE)
    handed_over = {
        "federation/authority/authority.crt": "authority.crt",
        "helper/request.json": "request.json",
        "federation/helper.json": "helper.json",
    }

    for line in lines[2:]:
        program, *arguments = line.replace("/media/stick", "stick").split()
        if program == "mv":
            Path(arguments[0]).rename(arguments[1])
            continue
        assert PROGRAMS[program](arguments) == 0, line
        told = without_digests(capsys.readouterr().out, tmp_path)
        assert told == without_digests(printed_after(line), tmp_path)
        for made, name in handed_over.items():
            if Path(made).exists():
                shutil.copy(made, name)

    assert [line.split()[:2] for line in lines[2:]] == [
        ["sotto-server", "init"],
        ["mv", "federation/authority/authority.key"],
        ["sotto-helper", "init"],
        ["sotto-server", "admit-helper"],
        ["sotto-helper", "admit"],
    ]
    config = parse_config(SETTINGS, "masked.toml")
    assert isinstance(config.privacy, MaskedNoise)
    least = config.privacy.least_contributors(config.rounds.quorum)
    assert f"--least-contributors {least} " in PAGE


def test_the_trial_of_the_guide_is_what_its_changes_make_of_the_settings() -> None:
    text = SETTINGS
    (changes,) = re.findall(r"To try all of this .*? set (.*?)\. That", PAGE, re.DOTALL)
    pairs = re.findall(r"`([a-z_]+) = ([^`]+)`", changes)
    assert len(pairs) == changes.count("`") // 2 == 8
    for name, value in pairs:
        text, count = re.subn(rf"^{name} = \S+", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name

    config = parse_config(text, "trial")

    assert (config.rounds.cohort_size, config.rounds.quorum, config.rounds.cap) == (3, 3, 3)
    assert config.helper is not None
    assert config.helper.address == "localhost:7450"


def test_the_floor_has_the_line_that_the_guide_uncomments_and_the_settings_the_new_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "floor.toml"
    write_starting_floor(path, helper="ab" * 32)
    assert f"# {FLOOR}" in path.read_text()

    path.write_text(path.read_text().replace(f"# {FLOOR}", FLOOR))

    floor = read_floor(path)
    assert floor.sums == "masked"
    quoted = " ".join(re.findall(r"^> (.*)$", PAGE, re.MULTILINE))
    assert quoted == " ".join(floor_in_words(floor))
    assert tomllib.loads(START + SETTINGS)["start_from"].endswith("releases/latest")
