"""The command ``sotto-simulate audit``: its flags, its progress and what it prints."""

from pathlib import Path
from typing import Annotated

import msgspec

from privacy.foundation.flags import Flag
from simulation.auditing.defaults import PARTS, PRECISION, REPETITIONS, SECRET_COUNT
from simulation.commands.flags import Rounds


class Audited(Rounds, frozen=True, kw_only=True):
    """A federation to audit.

    Attributes:
        only: Audit this part: canaries (the noise), leakage (one upload), exposure (planted
            sentences; trains a whole run); may be repeated (default: all).
        precision: Relative standard error of the measured noise multiplier, at most 0.1; rounds
            grow with its inverse square.
        secrets: Sentences to plant, one a client.
        repetitions: How often a client writes its sentence.
        seed: Seed of run and canaries (default: the preset's).
        out: Folder of the audit (default: runs/NAME-audit-seed-SEED).
    """

    only: Annotated[list[str], Flag(choices=lambda: PARTS)] = msgspec.field(default_factory=list)
    precision: float = PRECISION
    secrets: int = SECRET_COUNT
    repetitions: int = REPETITIONS
    seed: int | None = None
    out: Path | None = None


def audit(asked: Audited) -> int:
    """Measure the true noise, what a model remembers, what an upload shows.

    Raises:
        AuditError: If a claim does not hold, after everything is written and printed.
    """
    from privacy.auditing.scores import AuditError
    from simulation.auditing.audit import REPORT_FILE, AuditOptions, run_audit
    from simulation.config.simulation import config_from, read_tables, with_settings
    from simulation.engines.choice import engine_on, worker_count_on
    from simulation.figures.progress import CanaryProgress, ProgressReport, tell
    from simulation.population.dealing import build_population
    from simulation.population.population import as_text

    request = asked.request()
    # Settings and people.
    tables = with_settings(read_tables(request.name), request.settings)
    config = config_from(tables, request.name)
    out = asked.out or Path("runs") / f"{request.short_name}-audit-seed-{config.seed}"
    population = as_text(build_population(config, request.data))
    tell([*population.notes, f"privacy: {config.privacy.guarantee}"])
    # The audit itself, part by part.
    parts = [part for part in PARTS if part in (asked.only or PARTS)]
    with (
        request.cluster() as cluster,
        ProgressReport(out.name, last_round=config.rounds.cap) as report,
        CanaryProgress() as canaries,
    ):
        options = AuditOptions(
            parts=parts,
            precision=asked.precision,
            secret_count=asked.secrets,
            repetitions=asked.repetitions,
            worker_count=worker_count_on(cluster, request.worker_count),
            reporter=report,
            on_canaries=canaries,
            engine=engine_on(cluster),
        )
        result = run_audit(request.name, config, tables, population, out=out, options=options)
    if asked.json:
        print(msgspec.json.encode(result).decode())
    else:
        for name, value in [*result.figures().items(), ("verdict", result.verdict)]:
            print(f"{name:52} {value}")
        print(f"{'report':52} {out / REPORT_FILE}")
    if result.faults:
        raise AuditError("; ".join(result.faults))
    return 0
