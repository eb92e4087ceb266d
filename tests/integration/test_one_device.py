"""The one device with which the README says how to try preset ``keyboard``."""

import re
from pathlib import Path

import pytest

from edge_client.agent.acceptance import PlanRefusedError, accept_plan
from edge_client.owner.floor import read_floor
from edge_client.owner.settings import read_client_settings, write_starting_settings
from edge_client.owner.starting_floor import write_starting_floor
from edge_client.owner.traffic import Traffic
from protos import federation_pb2 as pb
from server.config.federation import parse_config, preset_text
from server.config.plans import make_plan

README = Path(__file__).parents[2] / "README.md"


def changed_lines() -> dict[str, str]:
    """Return the lines that the README changes in files of settings, by their key."""
    blocks = re.findall(r"```toml\n(.*?)```", README.read_text(), re.DOTALL)
    return {line.partition(" = ")[0]: line for block in blocks for line in block.splitlines()}


def changed(text: str, *keys: str) -> str:
    """Return settings with the README's lines in place of theirs."""
    for key in keys:
        text, count = re.subn(rf"^{key} = .*$", changed_lines()[key], text, flags=re.MULTILINE)
        assert count == 1, key
    return text


def test_the_readmes_lines_let_one_device_serve_rounds_that_its_floor_would_refuse(
    tmp_path: Path,
) -> None:
    floor, settings = tmp_path / "floor.toml", tmp_path / "client.toml"
    write_starting_floor(floor, accepts_no_guarantee=True)
    write_starting_settings(settings)
    traffic = Traffic(tmp_path / "traffic.json")

    config = parse_config(changed(preset_text("keyboard"), "cohort_size", "quorum"), "the preset")
    plan = make_plan(config, "ab" * 16)

    assert (config.rounds.quorum, plan.cohort_size) == (1, 1)
    with pytest.raises(PlanRefusedError, match=r"least_cohort, in floor\.toml") as refused:
        accept_plan(pb.Lease(plan=plan.encode()), read_floor(floor), traffic)
    assert refused.value.code == "floor_cohort"
    floor.write_text(changed(floor.read_text(), "least_cohort"))
    assert accept_plan(pb.Lease(plan=plan.encode()), read_floor(floor), traffic) == plan
    settings.write_text(changed(settings.read_text(), "idle"))
    assert not read_client_settings(settings).policy.idle


def test_a_new_device_refuses_rounds_that_may_close_with_its_update_alone(tmp_path: Path) -> None:
    write_starting_floor(tmp_path / "floor.toml", accepts_no_guarantee=True)
    floor, traffic = read_floor(tmp_path / "floor.toml"), Traffic(tmp_path / "traffic.json")
    preset = preset_text("keyboard").replace("cohort_size = 10", "cohort_size = 2")

    plans = [
        make_plan(parse_config(preset.replace("quorum = 7", f"quorum = {quorum}"), "it"), "ab" * 16)
        for quorum in (1, 2)
    ]

    with pytest.raises(PlanRefusedError) as refused:
        accept_plan(pb.Lease(plan=plans[0].encode()), floor, traffic)
    assert refused.value.code == "floor_cohort"
    assert accept_plan(pb.Lease(plan=plans[1].encode()), floor, traffic) == plans[1]
