"""Audit a federation: its mechanism, what its model remembers, and what one round gives away.

Canaries need no text and no training, leakage one round of training, and exposure a whole run.
Results lie in one folder; a stopped audit goes on with what is there.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from edge_client.descent.compute import prepare_compute
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, word_network
from models.settings.model import schema_of
from models.vector.schema import Role
from privacy.auditing.exposure import exposure
from privacy.auditing.scores import AuditError
from privacy.foundation.atomic_files import READABLE, write_atomically
from server.config.plans import make_plan
from server.releases.files import ReleaseFolder
from server.releases.starting_model import starting_parameters
from simulation.auditing.defaults import PARTS, PRECISION, REPETITIONS, SECRET_COUNT, Part
from simulation.auditing.mechanism import (
    MechanismAudit,
    audit_mechanism,
    rounds_needed,
    slot_count_of,
    subject,
)
from simulation.auditing.planted import draw_secrets, plant, sentence_losses
from simulation.auditing.report import report_page
from simulation.auditing.result import AuditResult, SecretsAudit
from simulation.auditing.rounds_file import RoundsFile
from simulation.auditing.uploads import RoundLeakage, round_leakage
from simulation.config.simulation import SimulationConfig
from simulation.figures.progress import Quiet, Reporter
from simulation.population.population import TextPopulation
from simulation.runs.checkpoint import RELEASES_FOLDER
from simulation.runs.runner import RunOptions, run_simulation
from simulation.workers.engine import Engine
from simulation.workers.local import LocalWorkers

RESULT_FILE = "audit.json"
REPORT_FILE = "audit.html"
_REFERENCES = 4095
_RUN = "0" * 32


class AuditOptions(NamedTuple):
    """The scope of an audit, and how closely it looks.

    Attributes:
        precision: Relative standard error of the measured noise multiplier, at most 0.1.
        secret_count: Sentences to plant, at most one a client.
        repetitions: How often each is written by its client.
        reporter: Hears of every round of training.
        on_canaries: Hears of rounds of canaries done, and of all.
        engine: Where the run of the exposure trains; the other parts are this process's.
    """

    parts: Sequence[Part] = PARTS
    precision: float = PRECISION
    secret_count: int = SECRET_COUNT
    repetitions: int = REPETITIONS
    worker_count: int = 1
    reporter: Reporter = Quiet()
    on_canaries: Callable[[int, int], None] | None = None
    engine: Engine = LocalWorkers


def run_audit(
    name: str,
    config: SimulationConfig,
    tables: Mapping[str, Any],  # TOML values.
    population: TextPopulation,
    *,
    out: Path,
    options: AuditOptions,
) -> AuditResult:
    """Run the parts that are asked for and write ``audit.json`` and ``audit.html``.

    Raises:
        AuditError: If the configuration cannot be audited, or the folder holds another audit.
        SimulationError: If a round of training cannot be held.
    """
    unknown = set(options.parts) - set(PARTS)
    if unknown or not options.parts:
        raise AuditError(f"parts must be some of {', '.join(PARTS)}, got {sorted(unknown)}")
    prepare_compute("cpu", threads=1, model=config.model)
    described = msgspec.json.encode([options.precision, tables], order="sorted").decode()
    kept = RoundsFile(out / "canaries.npz", described)
    result = AuditResult(
        name=name,
        guarantee=config.privacy.guarantee,
        canaries=_canaries(config, population, kept, options),
        leakage=_leakage(config, population) if "leakage" in options.parts else None,
        secrets=_secrets(config, tables, population, out, options),
    )
    out.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(result))
    write_atomically(out / RESULT_FILE, encoded, mode=READABLE)
    page = report_page(result, kept.read() if result.canaries else None)
    write_atomically(out / REPORT_FILE, page.encode(), mode=READABLE)
    return result


def _canaries(
    config: SimulationConfig, population: TextPopulation, kept: RoundsFile, options: AuditOptions
) -> MechanismAudit | None:
    if "canaries" not in options.parts:
        return None
    audited = subject(
        config.schema.with_roles(Role.SHARED),
        config.aggregation,
        config.privacy,
        slot_count=slot_count_of(config, len(population.clients)),
        seed=config.seed,
        quorum=config.rounds.quorum,
    )
    count = len(audited.canaries.directions)
    needed = rounds_needed(audited.privacy, count, precision=options.precision)

    def on_round(done: int) -> None:
        if options.on_canaries is not None:
            options.on_canaries(done, needed)

    return audit_mechanism(
        audited,
        round_count=needed,
        seed=config.seed,
        kept=kept,
        on_round=on_round,
    )


def _leakage(config: SimulationConfig, population: TextPopulation) -> RoundLeakage:
    plan = make_plan(
        config,
        _RUN,
        cohort_size=slot_count_of(config, len(population.clients)),
        vocabulary=population.vocabulary,
    )
    parameters = starting_parameters(config, plan)
    return round_leakage(config, plan, population, parameters)


def _secrets(
    config: SimulationConfig,
    tables: Mapping[str, Any],
    population: TextPopulation,
    out: Path,
    options: AuditOptions,
) -> SecretsAudit | None:
    if "exposure" not in options.parts:
        return None
    secrets = draw_secrets(
        config.word_list.size,
        count=min(options.secret_count, len(population.clients)),
        reference_count=_REFERENCES,
        generator=torch.Generator().manual_seed(config.seed),
    )
    planted = plant(population, secrets.planted, repetitions=options.repetitions)
    # Named after what is planted: a run is never resumed with other text.
    folder = out / f"secrets-{len(secrets.planted)}x{options.repetitions}"
    run = RunOptions(
        worker_count=options.worker_count, reporter=options.reporter, engine=options.engine
    )
    final = run_simulation(config, tables, planted, folder, run)
    model_round = int(final["model_round"] or 0)
    release = ReleaseFolder(folder / RELEASES_FOLDER).read(model_round)
    model = release.plan.model
    network = word_network(build_network(model))
    load_parameters(network, schema_of(model), torch.tensor(release.parameters))
    network.eval()
    losses = [sentence_losses(network, part).numpy() for part in secrets]
    perplexity = final.get("test_perplexity")
    return SecretsAudit(
        exposure=exposure(*losses),
        repetitions=options.repetitions,
        model_round=model_round,
        test_perplexity=perplexity if isinstance(perplexity, float) else None,
    )
