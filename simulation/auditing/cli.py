"""The command ``sotto-simulate audit``: its flags, its progress and what it prints."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from simulation.auditing.defaults import PARTS, PRECISION, REPETITIONS, SECRET_COUNT

if TYPE_CHECKING:
    from simulation.commands.runs import Request


def add_audit(audit: argparse.ArgumentParser) -> None:
    """Add the flags that only ``audit`` has."""
    audit.add_argument(
        "--only",
        action="append",
        choices=PARTS,
        help="audit this part: canaries (the noise), leakage (one upload), exposure (planted "
        "sentences; trains a whole run); may be repeated (default: all)",
    )
    audit.add_argument(
        "--precision",
        type=float,
        default=PRECISION,
        help="relative standard error of the measured noise multiplier, at most 0.1; rounds grow "
        "with its inverse square (default: %(default)s)",
    )
    audit.add_argument(
        "--secrets",
        type=int,
        default=SECRET_COUNT,
        help="sentences to plant, one a client (default: %(default)s)",
    )
    audit.add_argument(
        "--repetitions",
        type=int,
        default=REPETITIONS,
        help="how often a client writes its sentence (default: %(default)s)",
    )
    audit.add_argument("--seed", type=int, help="seed of run and canaries (default: the preset's)")
    audit.add_argument(
        "--out", type=Path, help="folder of the audit (default: runs/NAME-audit-seed-SEED)"
    )


def run_audit_command(arguments: argparse.Namespace, request: "Request") -> int:
    """Audit, print the figures and say where the page lies.

    Raises:
        AuditError: If a claim does not hold, after everything is written and printed.
    """
    from privacy.auditing.scores import AuditError
    from simulation.auditing.audit import REPORT_FILE, AuditOptions, run_audit
    from simulation.config.simulation import config_from, read_tables, with_settings
    from simulation.figures.progress import CanaryProgress, ProgressReport, tell
    from simulation.population.dealing import build_population
    from simulation.population.population import as_text
    from simulation.workers.processes import processor_count

    tables = with_settings(read_tables(request.name), request.settings)
    config = config_from(tables, request.name)
    out: Path = arguments.out or Path("runs") / f"{request.short_name}-audit-seed-{config.seed}"
    population = as_text(build_population(config, request.data))
    tell([*population.notes, f"privacy: {config.privacy.guarantee}"])
    parts = [part for part in PARTS if part in (arguments.only or PARTS)]
    with (
        ProgressReport(out.name, last_round=config.rounds.cap) as report,
        CanaryProgress() as canaries,
    ):
        options = AuditOptions(
            parts=parts,
            precision=arguments.precision,
            secret_count=arguments.secrets,
            repetitions=arguments.repetitions,
            worker_count=request.worker_count or processor_count(),
            reporter=report,
            on_canaries=canaries,
        )
        result = run_audit(request.name, config, tables, population, out=out, options=options)
    if arguments.json:
        print(msgspec.json.encode(result).decode())
    else:
        for name, value in [*result.figures().items(), ("verdict", result.verdict)]:
            print(f"{name:52} {value}")
        print(f"{'report':52} {out / REPORT_FILE}")
    if result.faults:
        raise AuditError("; ".join(result.faults))
    return 0
