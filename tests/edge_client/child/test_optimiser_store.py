"""Momentum survives a round on the device, and its loss costs no more than momentum."""

from pathlib import Path

import pytest
import torch

from edge_client.child.optimiser_store import load_state, save_state
from models.settings.model import GruLmSettings
from tests.edge_client.training_plan import make_plan

PLAN = make_plan(optimiser_state="kept", momentum=0.9)
STATE = {"momentum": torch.tensor([0.1, -2.5, 3.0])}


def test_a_kept_state_comes_back_bit_for_bit_and_is_its_owners_alone(tmp_path: Path) -> None:
    save_state(tmp_path / "optimiser", PLAN, STATE)

    kept = load_state(tmp_path / "optimiser", PLAN)

    assert kept is not None
    assert kept.keys() == STATE.keys()
    assert torch.equal(kept["momentum"], STATE["momentum"])
    for path in (tmp_path / "optimiser", *(tmp_path / "optimiser").iterdir()):
        assert path.stat().st_mode & 0o077 == 0


def test_nothing_is_written_where_nothing_is_kept(tmp_path: Path) -> None:
    save_state(tmp_path / "optimiser", PLAN, None)

    assert not (tmp_path / "optimiser").exists()
    assert load_state(tmp_path / "optimiser", PLAN) is None


def test_another_model_or_optimiser_has_another_state(tmp_path: Path) -> None:
    save_state(tmp_path, PLAN, STATE)

    assert load_state(tmp_path, make_plan(optimiser_state="kept", optimiser="adam")) is None
    assert load_state(tmp_path, make_plan(model=GruLmSettings(vocabulary_size=21))) is None


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 torn", bytes(200)])
def test_a_damaged_state_is_a_fresh_start(tmp_path: Path, damage: bytes) -> None:
    save_state(tmp_path, PLAN, STATE)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)

    assert load_state(tmp_path, PLAN) is None


def test_a_state_with_a_flipped_bit_is_a_fresh_start_or_what_it_was(tmp_path: Path) -> None:
    save_state(tmp_path, PLAN, STATE)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()

    for place in range(len(whole)):
        for bit in (0x01, 0x80):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            kept = load_state(tmp_path, PLAN)
            assert kept is None or torch.equal(kept["momentum"], STATE["momentum"])


def test_a_torn_state_is_a_fresh_start(tmp_path: Path) -> None:
    save_state(tmp_path, PLAN, STATE)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()

    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert load_state(tmp_path, PLAN) is None
