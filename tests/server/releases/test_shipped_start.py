"""The start that ships: its card names these very bytes, and the presets begin with them."""

import hashlib
from pathlib import Path

import pytest

import models.data
from models.compression.packed_model import packed_digest, read_packed
from server.config.federation import parse_config, preset_text
from server.config.plans import make_plan
from server.config.shipped_starts import SHIPPED_STARTS
from server.releases.starting_model import starting_parameters

DATA = Path(models.data.__file__).parent
SHIPPED = DATA / "english-start.sotto"


@pytest.mark.parametrize("start", [f"{name}-start.sotto" for name in SHIPPED_STARTS])
def test_the_card_names_the_digest_and_the_size_of_the_file(start: str) -> None:
    file = DATA / start
    card = file.with_suffix(".md").read_text(encoding="utf-8")

    assert hashlib.sha256(file.read_bytes()).hexdigest() in card
    assert f"{file.stat().st_size:,} bytes" in card


@pytest.mark.parametrize("preset", ["keyboard", "keyboard-central"])
def test_a_preset_begins_with_its_parameters(preset: str) -> None:
    config = parse_config(preset_text(preset), preset)
    plan = make_plan(config, "0" * 32, cohort_size=1)

    parameters = starting_parameters(config, plan).numpy()

    assert packed_digest(parameters) == read_packed(SHIPPED).description.parameters_sha256
