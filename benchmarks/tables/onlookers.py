"""Write a table of noised sums: its matrix, how its columns differ, and epsilon by onlooker."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.masked import (
    COMPARED,
    FIGURES,
    PLANS,
    QUICK_PLANS,
    Plan,
    row_name,
)
from benchmarks.tables.matrix import write_matrix
from benchmarks.tables.records import RunRecord, counted_before
from benchmarks.tables.report import MARK, Rows, rows_to_run
from simulation.tuning.candidate import Candidate, Deployment, Mode, Promise, promise_of
from simulation.tuning.crowd import usual_delta


def write_masked(
    name: str,
    table: TableDefinition,
    rows: Rows,
    folder: Path,
    *,
    command: str,
    runs: Mapping[str, Sequence[RunRecord]],
) -> None:
    """Write ``NAME.json`` and ``NAME.md``; arguments as of ``write_matrix``."""
    plan = (PLANS | QUICK_PLANS)[name]
    remarks = [*_differences(plan, runs), *_epsilons(plan), *_missing(table, runs)]
    write_matrix(name, table, rows, folder, command=command, runs=runs, remarks=remarks)


def _differences(plan: Plan, runs: Mapping[str, Sequence[RunRecord]]) -> Iterator[str]:
    """Say how columns stand to each other, seed by seed: the cohorts of a seed are the same."""
    yield from ("", "## Differences, seed by seed", "")
    yield "Mean ± sample standard deviation over the seeds of what two runs of one seed differ by."
    yield ""
    finals = [run.final for of_row in runs.values() for run in of_row]
    mark = MARK if any(map(counted_before, finals)) else ""
    yield f"| | against | perplexity | top-3 recall, points{mark} |"
    yield "| --- | --- | --- | --- |"
    for strength in plan.strengths:
        for multiplier in plan.multipliers:
            for column, other in COMPARED:
                name = row_name(strength, multiplier, column)
                theirs = _by_seed(runs.get(row_name(strength, multiplier, other), ()))
                pairs = [
                    (mine, theirs[seed])
                    for seed, mine in _by_seed(runs.get(name, ())).items()
                    if seed in theirs
                ]
                if pairs:
                    perplexity = _told([100 * (a[0] / b[0] - 1) for a, b in pairs], " %")
                    recall = _told([100 * (a[1] - b[1]) for a, b in pairs], "")
                    yield f"| {name} | {other} | {perplexity} | {recall} |"


def _by_seed(runs: Sequence[RunRecord]) -> dict[int, tuple[float, float]]:
    """Return perplexity and recall of each run that has both."""
    found = {}
    for run in runs:
        perplexity, recall = (run.final.get(figure) for figure in FIGURES)
        if isinstance(perplexity, int | float) and isinstance(recall, int | float):
            found[run.seed] = float(perplexity), float(recall)
    return found


def _told(differences: Sequence[float], unit: str) -> str:
    mean = statistics.fmean(differences)
    if len(differences) == 1:
        return f"{mean:+.2f}{unit}, one seed"
    spread = statistics.stdev(differences)
    within = ", within the spread" if abs(mean) <= spread else ""
    return f"{mean:+.2f}{unit} ± {spread:.2f}{within}"


def _epsilons(plan: Plan) -> Iterator[str]:
    """Say what the deployment spends against each onlooker, as the tuner counts it."""
    delta = usual_delta(plan.population_size)
    yield from ("", "## Epsilon of the deployment", "")
    yield (
        f"{plan.rounds} rounds of {plan.cohort:,} among {plan.population_size:,} people, "
        f"δ = {delta:.2g}, no attempt abandoned. Secret coins amplify the coordinator's noise "
        "against readers. Under masks nothing is amplified, since the coordinator knows who took "
        "part, and the ledger counts a person as taking part in every round."
    )
    yield ""
    yield "| noise | z | against readers | against the coordinator | one round, against both |"
    yield "| --- | --- | --- | --- | --- |"
    for multiplier in plan.multipliers:
        readers = _promise(plan, "central", multiplier, plan.rounds).epsilon
        yield f"| of the coordinator | {multiplier:g} | {readers:.3g} | nothing is promised | |"
    for multiplier in plan.multipliers:
        promise = _promise(plan, "masked", multiplier, plan.rounds)
        once = _promise(plan, "masked", multiplier, 1)
        yield (
            f"| of the devices, under masks | {multiplier:g} | {promise.epsilon:.3g} | "
            f"{promise.coordinator_epsilon:.3g} | {once.epsilon:.3g} |"
        )


@cache
def _promise(plan: Plan, mode: Mode, multiplier: float, rounds: int) -> Promise:
    deployment = Deployment(
        population_size=plan.population_size,
        rounds=rounds,
        delta=usual_delta(plan.population_size),
        honest_share=1.0,
    )
    candidate = Candidate(
        mode=mode,
        rule="attentive",
        noise_multiplier=multiplier,
        clipping_norm=plan.clipping_norm,
        attention_strength=plan.strengths[0],
        cohort=plan.cohort,
        server_step_size=1.0,
    )
    return promise_of(candidate, deployment, plan.schema)


def _missing(table: TableDefinition, runs: Mapping[str, Sequence[RunRecord]]) -> Iterator[str]:
    """Name the runs that have not been made."""
    if missing := rows_to_run(table, runs):
        yield from ("", "## Not run", "", *missing)
