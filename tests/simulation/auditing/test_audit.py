import json
import os
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privacy.auditing.scores import AuditError
from server.config.plans import make_plan
from server.releases.starting_model import starting_parameters
from simulation.auditing.audit import AuditOptions, run_audit
from simulation.auditing.coordinator import ClosingCoordinator
from simulation.auditing.mechanism import slot_count_of
from simulation.auditing.uploads import round_leakage
from simulation.cli import main
from simulation.config.simulation import SimulationConfig
from simulation.population.population import TextPopulation

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]

CENTRAL = (
    'privacy={mode="central", clipping_norm=1.0, noise_multiplier=0.5, delta=1e-4, '
    'epsilon_budget=1000.0, adjacency="zero-out"}'
)

MASKED = (
    'privacy={mode="masked", clipping_norm=1.0, noise_multiplier=0.001, delta=1e-4, '
    'epsilon_budget=1e9, coordinator_epsilon_budget=1e9, honest_share=1.0, adjacency="zero-out"}'
)


@pytest.fixture
def talkers(population: TextPopulation) -> TextPopulation:
    """Return three clients with twelve words each, of fifty."""
    names = list(population.clients)[:3]
    return replace(
        population,
        clients={
            name: population.clients[name] % 12 + 2 + 15 * number
            for number, name in enumerate(names)
        },
    )


def test_what_a_round_gives_away_depends_on_who_looks(
    configured: Configured, talkers: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured(CENTRAL)

    result = run_audit(
        "test", config, tables, talkers, out=tmp_path, options=AuditOptions(parts=["leakage"])
    )

    assert result.leakage is not None
    assert result.leakage.client_count == 3
    # Under central noise the operator sees clipped updates in the clear, a reader does not.
    assert result.leakage.upload.by_both > 0.9
    assert result.leakage.release.by_both < 0.75
    assert (result.canaries, result.secrets) == (None, None)
    assert "not audited" in result.verdict


def test_under_its_mask_an_upload_gives_no_word_away(
    configured: Configured, talkers: TextPopulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", random.Random(3).randbytes)
    config, _ = configured(MASKED)
    plan = make_plan(config, "0" * 32, vocabulary=talkers.vocabulary)
    parameters = starting_parameters(config, plan)

    found = [round_leakage(config, plan, talkers, parameters).upload for _ in range(20)]

    # A blind guess at 12 of 48 words has an AUC of 0.5 +- 0.1, the mean of 60 +- 0.013. In the
    # clear it is above 0.9.
    assert statistics.fmean(one.by_both for one in found) == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_sentences_written_often_are_exposed(
    configured: Configured, talkers: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured(
        "rounds.cap=6", "training.local_epochs=4", "training.batch_size=4", "training.bptt_steps=8"
    )
    options = AuditOptions(parts=["exposure"], secret_count=2, repetitions=40)

    result = run_audit("test", config, tables, talkers, out=tmp_path, options=options)

    assert result.secrets is not None
    assert len(result.secrets.exposure.bits) == 2
    # The losses of 4,095 other sentences are nearly all above: chance alone does so rarely.
    assert result.secrets.exposure.mean_bits > 6
    assert result.secrets.exposure.chance < 1e-3


@pytest.mark.slow
def test_the_page_shows_claim_figures_and_pictures(
    configured: Configured,
    talkers: TextPopulation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What nothing contradicts is contradicted by chance, twice in 10,000 audits.
    monkeypatch.setattr(os, "urandom", random.Random(3).randbytes)
    config, tables = configured(CENTRAL)
    options = AuditOptions(parts=["canaries", "leakage"], precision=0.1)

    result = run_audit("<b>mine</b>", config, tables, talkers, out=tmp_path, options=options)

    page = (tmp_path / "audit.html").read_text()
    assert "Nothing contradicts the claim" in page
    assert "central: (1000, 0.0001)-differential privacy" in page
    assert page.count('src="data:image/png;base64,iVBOR') == 2
    assert "<b>mine" not in page
    written = json.loads((tmp_path / "audit.json").read_text())
    assert written["canaries"]["claimed_noise_multiplier"] == 0.5
    assert result.canaries is not None
    assert written["canaries"]["estimate"]["upper"] == result.canaries.estimate.upper > 0.5


def test_an_audit_of_other_settings_is_not_taken_up(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    options = AuditOptions(parts=["canaries"], precision=0.1)
    config, tables = configured(CENTRAL)
    run_audit("test", config, tables, population, out=tmp_path, options=options)
    config, tables = configured(CENTRAL, "aggregation.attention_strength=0.1")

    with pytest.raises(AuditError, match="holds an audit of other settings"):
        run_audit("test", config, tables, population, out=tmp_path, options=options)


def test_no_part_is_refused(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    config, tables = configured()

    with pytest.raises(AuditError, match="parts must be some of canaries, leakage, exposure"):
        run_audit("test", config, tables, population, out=tmp_path, options=AuditOptions(parts=[]))


def test_places_are_those_of_the_rounds(configured: Configured) -> None:
    assert slot_count_of(configured(CENTRAL)[0], 6) == 3
    assert slot_count_of(configured("rounds.cohort_size=4")[0], 6) == 4


QUICK = ["--set", "vocabulary.size=50", "--set", "model.vocabulary_size=50",
         "--set", "data.client_count=60", "--precision", "0.1"]  # fmt: skip


@pytest.mark.slow
def test_the_command_prints_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", "keyboard-tiny", *QUICK, "--only", "canaries", "--out", str(tmp_path)]

    assert main(command) == 0
    words = capsys.readouterr()
    assert main([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)

    assert "there is no epsilon to compare with" in words.out
    assert "privacy: none: no noise, no privacy guarantee" in words.err
    assert "canaries: round" in words.err
    assert figures["canaries"]["claimed_noise_multiplier"] is None
    assert figures["leakage"] is None


@pytest.mark.slow
def test_the_command_refuses_what_cannot_be_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", "keyboard-tiny", *QUICK, "--out", str(tmp_path)]

    assert main([*command, "--only", "canaries", "--precision", "nan"]) == 1
    assert "precision must be above 0 and at most 0.1, got nan" in capsys.readouterr().err
    assert main([*command, "--only", "exposure", "--repetitions", "0"]) == 1
    assert "written at least once" in capsys.readouterr().err


@pytest.mark.slow
def test_a_claim_that_does_not_hold_fails_after_the_page_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fault: every coordinator draws a quarter of the noise that its settings name.
    def too_quiet(*places: Any) -> ClosingCoordinator:
        schema, aggregation, privacy, *rest = places
        quieter = msgspec.structs.replace(privacy, noise_multiplier=privacy.noise_multiplier / 4)
        return ClosingCoordinator(schema, aggregation, quieter, *rest)

    monkeypatch.setattr("simulation.auditing.mechanism.ClosingCoordinator", too_quiet)
    command = ["audit", "keyboard-tiny", *QUICK, "--only", "canaries", "--set", CENTRAL]

    assert main([*command, "--out", str(tmp_path)]) == 1

    told = capsys.readouterr()
    assert "The claim does not hold." in told.out
    assert "sotto-simulate: the noise multiplier is 0.1" in told.err
    assert "too little noise" in (tmp_path / "audit.html").read_text()
