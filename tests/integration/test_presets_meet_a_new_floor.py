"""A new device takes part in every shipped run that guarantees privacy, and in no other."""

from pathlib import Path

import pytest

import simulation.config.simulation as simulated
from edge_client.owner.floor import Floor, PlanBelowFloorError, check_plan, read_floor
from edge_client.owner.starting_floor import write_starting_floor as start
from models.plan.plan import Plan, VocabularySettings
from models.settings.model import WordModelSettings
from server.config.federation import parse_config, preset_names, preset_text
from server.config.plans import make_plan
from server.config.settings import FederationSettings

RUN = "ab" * 16


def floors(folder: Path) -> tuple[Floor, Floor]:
    """Return a new floor, and one that was started to accept no guarantee."""
    start(folder / "floor.toml")
    start(folder / "any.toml", accepts_no_guarantee=True)
    return read_floor(folder / "floor.toml"), read_floor(folder / "any.toml")


def plan_of(config: FederationSettings) -> Plan:
    """Return a plan for the fewest devices; a simulation's word list comes from its data."""
    size = config.rounds.cohort_size or config.rounds.quorum
    if not isinstance(config.model, WordModelSettings):
        return make_plan(config, RUN, cohort_size=size)
    words = VocabularySettings(name="own", size=config.model.vocabulary_size, sha256="00" * 32)
    return Plan(
        run=RUN,
        task=config.task,
        model=config.model,
        schema_sha256="00" * 32,
        vocabulary=words,
        training=config.training,
        personalisation=config.personalisation,
        privacy=config.privacy,
        cohort_size=size,
        quorum=config.rounds.quorum,
        seed=1,
    )


def check(plan: Plan, new: Floor, lenient: Floor) -> bool:
    """Return whether a new floor accepts a plan, as it must if that guarantees privacy."""
    check_plan(plan, lenient)
    if plan.privacy.guarantees_privacy:
        check_plan(plan, new)
        return True
    with pytest.raises(PlanBelowFloorError) as refused:
        check_plan(plan, new)
    assert refused.value.code == "floor_mode"
    return False


def test_every_preset_of_the_coordinator(tmp_path: Path) -> None:
    both = floors(tmp_path)

    accepted = [
        name
        for name in preset_names()
        if check(plan_of(parse_config(preset_text(name), name)), *both)
    ]

    assert accepted == ["keyboard-central"]


def test_every_preset_of_the_simulation(tmp_path: Path) -> None:
    both = floors(tmp_path)

    accepted = [
        name
        for name in simulated.preset_names()
        if check(plan_of(simulated.config_from(simulated.read_tables(name), name)), *both)
    ]

    assert accepted == ["keyboard-central"]
