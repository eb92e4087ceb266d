from pathlib import Path

import msgspec
import pytest

from server.config.federation import ConfigError
from simulation.config.overrides import parse_override
from simulation.config.simulation import (
    config_from,
    preset_names,
    preset_text,
    read_tables,
    with_settings,
)

EXPECTED = {
    "fedatt-ptb",
    "fedatt-wikitext2",
    "fedatt-reddit",
    "keyboard-sms",
    "keyboard-sms-scratch",
    "keyboard-irc",
    "keyboard-tiny",
    "fedtp-digits",
    "fedtp-cifar10",
    "fedtp-cifar100",
    "fedtp-shakespeare",
    "fedtp-keyboard",
}


def test_the_presets_of_the_papers_and_of_keyboards_ship() -> None:
    assert set(preset_names()) >= EXPECTED


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_read_and_says_its_source(name: str) -> None:
    config = config_from(read_tables(name), name)

    assert "Source:" in preset_text(name)
    assert config.data.dataset
    if name.endswith("-paper"):
        assert "NOT RUN" in preset_text(name)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.datset=ptb", r"unknown field `datset` - at `\$\.data`"),
        ("data.client_count=1.5", r"Expected `int \| null`, got `float` - at `\$\.data\.client"),
        ("data.client_count=0", "client_count must be >= 1, got 0"),
        ("data.partition=dirichlet", "concentration belongs to partition"),
        ("data.absence_rate=1.0", r"absence_rate must be in \[0, 1\), got 1\.0"),
        ("data.least_tokens=1", "least_tokens must be >= 2, got 1"),
        ('evaluation={kind="devices", cohort_size=3}', 'in a simulation, got "devices"'),
        ('evaluation={kind="public", public_text="test"}', 'must be "valid" in a simulation'),
        ("rounds.quorum=20", "cohort_size must be >= quorum 20"),
        ('aggregation={rule="norm-bounded"}', 'was removed; use .* or "geometric-median"$'),
        ('compression={uplink="float16"}', 'was removed; use compression.uplink = "bfloat16"$'),
        ("rounds.buffered={concurrency=6}", "buffered was removed; .*rounds.over_selection$"),
        ("speeds.slowest=20", r"\[speeds\] was removed; .*rounds.over_selection$"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_with_its_reason(setting: str, message: str) -> None:
    tables = with_settings(read_tables("keyboard-tiny"), [parse_override(setting)])

    with pytest.raises(ConfigError, match=message):
        config_from(tables, "keyboard-tiny")


def test_a_preset_that_extends_another_differs_in_what_it_says_alone() -> None:
    assert read_tables("feddt-ljspeech") == {
        **read_tables("fedt-ljspeech"),
        "growth": {"target_layer_count": 6, "stage_count": 6, "round_count": 120},
    }


def test_a_file_extends_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "keyboard-tiny"\n[rounds]\ncap = 7\n', encoding="utf-8")

    config = config_from(read_tables(str(path)), "mine")

    tiny = config_from(read_tables("keyboard-tiny"), "keyboard-tiny")
    assert config == msgspec.structs.replace(
        tiny, rounds=msgspec.structs.replace(tiny.rounds, cap=7)
    )


@pytest.mark.parametrize("base", ['"keyboard-tin"', '"../secret"', "3", '["keyboard-tiny"]'])
def test_what_extends_no_preset_is_refused(tmp_path: Path, base: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"extends = {base}\n", encoding="utf-8")

    with pytest.raises(ConfigError, match="extends must name another preset"):
        read_tables(str(path))


def test_an_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"fedatt-ptb, .*or a file ending in \.toml, got 'ptb'"):
        read_tables("ptb")


@pytest.mark.parametrize("asked", ["by name", "extended"])
def test_a_split_that_was_a_preset_names_the_settings_that_make_it(
    tmp_path: Path, asked: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "fedt-ljspeech-1-2-4"\n', encoding="utf-8")

    with pytest.raises(ConfigError, match=r"^preset fedt-ljspeech-1-2-4 is now fedt-ljspeech "):
        read_tables("fedt-ljspeech-1-2-4" if asked == "by name" else str(path))


def test_a_misspelt_preset_is_told_what_reads_alike() -> None:
    with pytest.raises(ConfigError, match=r"such as keyboard-tiny, .*got 'keyboard-tinny'"):
        read_tables("keyboard-tinny")


def test_a_federations_file_is_told_that_it_names_no_text(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text("seed = 1\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"federation: data\.dataset must say whose text"):
        config_from(read_tables(str(path)), "federation")


def test_a_list_belongs_to_a_sweep() -> None:
    with pytest.raises(ValueError, match=r"rounds\.cap must have one value here, got 2"):
        with_settings(read_tables("keyboard-tiny"), [parse_override("rounds.cap=1,2")])
