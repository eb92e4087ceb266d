"""Every program tells its versions, completes in a shell and has schemas that fit its files."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import edge_client.cli
import export.cli
import export.serve.cli
import privacy.cli
import server.cli
import server.config.federation
import server.helper.cli
import simulation.cli
import simulation.config.simulation
from edge_client.owner.floor import Floor
from edge_client.owner.settings import STARTING_SETTINGS, ClientSettings
from edge_client.owner.starting_floor import write_starting_floor
from export.serve.folder.settings import ServeSettings
from privacy.foundation.toml_schema import toml_schema
from protos.version import HELPER_VERSION, PLAN_VERSION, PROTOCOL_VERSION, VERSION
from server.config.federation import FederationConfig
from server.helper.settings import HelperSettings
from simulation.config.file_schema import file_schema
from simulation.config.simulation import SimulationConfig

Main = Callable[[Sequence[str] | None], int]
PROGRAMS: dict[str, Main] = {
    "sotto-server": server.cli.main,
    "sotto-client": edge_client.cli.main,
    "sotto-simulate": simulation.cli.main,
    "sotto-privacy": privacy.cli.main,
    "sotto-export": export.cli.main,
    "sotto-serve": export.serve.cli.main,
    "sotto-helper": server.helper.cli.main,
}
SETTINGS = [
    *(FederationConfig, SimulationConfig, HelperSettings),
    *(Floor, ClientSettings, ServeSettings),
]
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def ended(main: Main, *arguments: str) -> int:
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    return int(ending.value.code or 0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_tells_the_versions_that_two_ends_compare(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(PROGRAMS[program], "--version") == 0

    told = f"protocol {PROTOCOL_VERSION}, plans {PLAN_VERSION}, helper {HELPER_VERSION}"
    assert capsys.readouterr().out == f"{program} {VERSION} ({told})\n"


@pytest.mark.parametrize(
    ("program", "typed", "offered"),
    [
        ("sotto-server", ["rotate-i"], ["rotate-issuing-key"]),
        ("sotto-client", ["run", "--dev"], ["--device"]),
        ("sotto-client", ["run", "--device", "c"], ["cpu", "cuda"]),
        ("sotto-serve", ["promo"], ["promote"]),
        ("sotto-simulate", ["run", "--engine", "r"], ["ray"]),
    ],
)
def test_bash_completes_a_command(
    program: str, typed: list[str], offered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(PROGRAMS[program], "--print-completion", "bash") == 0
    words = " ".join(map(repr, [program, *typed]))
    asked = (
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed)}; _shtab_{program.replace('-', '_')}; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )

    answer = subprocess.run(
        ["bash", "--norc"],
        input=capsys.readouterr().out + asked,
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout.split() == offered


def test_completion_without_its_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)

    assert ended(edge_client.cli.main, "--print-completion", "zsh") == 1
    assert "install sotto[completions]" in capsys.readouterr().err


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_every_setting_is_described(kind: type[Any]) -> None:
    schema = toml_schema(kind, "settings.toml")

    Draft202012Validator.check_schema(schema)
    assert [
        (name, setting)
        for name, part in schema["$defs"].items()
        for setting, field in part.get("properties", {}).items()
        # What has a description of its own, and what picks the kind of a table.
        if "description" not in field and "$ref" not in str(field) and "enum" not in field
    ] == []


@pytest.mark.parametrize("name", server.config.federation.preset_names())
def test_a_federations_preset_fits_its_schema(name: str) -> None:
    validator = Draft202012Validator(toml_schema(FederationConfig, "federation.toml"))
    tables = tomllib.loads(server.config.federation.preset_text(name))

    assert list(validator.iter_errors(tables)) == []
    (error,) = validator.iter_errors({**tables, "nosie": 1})
    assert "nosie" in error.message


@pytest.mark.parametrize("name", simulation.config.simulation.preset_names())
def test_a_simulations_preset_fits_its_schema(name: str) -> None:
    tables = tomllib.loads(simulation.config.simulation.preset_text(name))

    assert list(Draft202012Validator(file_schema()).iter_errors(tables)) == []


def test_what_an_owner_starts_with_fits_its_schema(tmp_path: Path) -> None:
    write_starting_floor(tmp_path / "floor.toml")
    for text, kind in (
        ((tmp_path / "floor.toml").read_text(), Floor),
        (STARTING_SETTINGS, ClientSettings),
    ):
        validator = Draft202012Validator(toml_schema(kind, "settings.toml"))
        assert list(validator.iter_errors(tomllib.loads(text))) == []


@pytest.mark.parametrize(
    ("program", "arguments", "title"),
    [
        ("sotto-server", ["schema"], "federation.toml"),
        ("sotto-helper", ["schema"], "helper.toml"),
        ("sotto-serve", ["schema"], "serve.toml"),
        ("sotto-client", ["schema", "floor.toml"], "floor.toml"),
        ("sotto-client", ["schema", "client.toml"], "client.toml"),
        ("sotto-simulate", ["schema"], "a file to simulate"),
    ],
)
def test_a_program_prints_the_schema_of_its_file(
    program: str, arguments: list[str], title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PROGRAMS[program](arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["$schema"], printed["title"]) == (DRAFT, title)
