"""Run the subcommand ``tune``: from a target epsilon to the settings of a federation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from models.vector.schema import Schema
from privacy.foundation.atomic_files import READABLE, write_atomically
from simulation.commands.runs import Request
from simulation.config.simulation import SimulationConfig, config_from, read_tables, with_settings
from simulation.figures.progress import ManyProgress, tell
from simulation.population.dealing import build_population
from simulation.population.population import Population
from simulation.tuning.candidate import Deployment, NoiseOn
from simulation.tuning.crowd import Crowd, least_crowds, usual_delta
from simulation.tuning.crowd import markdown as crowds_markdown
from simulation.tuning.fragment import fragment
from simulation.tuning.frontier import NothingWithinBudgetError, recommended, write
from simulation.tuning.measuring import Laboratory, Measurement
from simulation.tuning.space import Dimension, Space, make_space
from simulation.tuning.study import search

SETTINGS_FILE, CROWD_FILE = "recommended.toml", "crowd.md"


class TuneRequest(NamedTuple):
    """The request of ``tune``.

    Attributes:
        run: The request as ``run`` would have it: preset, data, changed settings, workers.
        out: Folder of the search, or None for the usual one.
        target_epsilon: ε of the whole deployment.
        delta: δ of the whole deployment; None is N^-1.1.
        population_size: N, enrolled people; None is as many as there are clients at hand.
        simulated_cohort: M', people whom a deployed round expects; None is the cohort at hand.
        honest_share: As in ``Deployment``.
        batch: Trials that are drawn before the first of them is tried.
    """

    run: Request
    out: Path | None
    target_epsilon: float
    delta: float | None
    population_size: int | None
    simulated_cohort: int | None
    modes: Sequence[str]
    rules: Sequence[str]
    noise_on: NoiseOn
    searched: Mapping[str, Dimension]
    trial_count: int
    seeds: Sequence[int]
    honest_share: float | None = None
    batch: int = 1


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a search.

    Attributes:
        recommended: The best model within the target epsilon, or None.
        settings: The TOML tables that deploy it, or None.
        crowds: Smallest populations and cohorts at which privacy costs little, as ``crowds_text``
            in Markdown; none unless a cohort was simulated.
        trials: Trials measured to the end.
    """

    recommended: Measurement | None
    settings: str | None
    crowds: list[Crowd]
    crowds_text: str | None
    trials: int
    out: str


def tune(request: TuneRequest) -> Tuned:
    """Search, write the results after every trial, and recommend."""
    run = request.run
    tables = with_settings(read_tables(run.name), run.settings)
    config = config_from(tables, run.name)
    population = build_population(config, run.data)
    deployment = _deployment(request, config, population)
    cohort = request.simulated_cohort or config.rounds.cohort_size_of(len(population.clients))
    note = _note(cohort, config, population, deployment)
    tell([note])
    out = request.out or Path("runs") / f"{run.short_name}-tune"
    space = _space(request, config, cohort)
    place = run.place()
    with (
        ManyProgress("trials", count=request.trial_count) as progress,
        place.starter(progress.running) as starter,
    ):
        laboratory = Laboratory(
            tables=tables,
            deployment=deployment,
            population=population,
            seeds=request.seeds,
            worker_count=place.worker_count,
            folder=out / "runs",
            starter=starter,
        )
        references = [laboratory.try_without_noise(rule) for rule in space.rules]
        results = Results(out, deployment, note, [one.measure() for one in references])

        def after_trial(done: int, line: str, measured: list[Measurement]) -> None:
            progress.trial_finished(done, line)
            results.write(measured)

        measured = search(
            space,
            laboratory,
            trial_count=request.trial_count,
            batch=request.batch,
            folder=out,
            seed=config.seed,
            after_trial=after_trial,
        )
    results.write(measured)
    return _report(request, results, measured, laboratory.schema)


def _deployment(
    request: TuneRequest, config: SimulationConfig, population: Population
) -> Deployment:
    size = request.population_size or len(population.clients)
    return Deployment(
        population_size=size,
        rounds=config.rounds.cap,
        delta=usual_delta(size) if request.delta is None else request.delta,
        honest_share=request.honest_share,
    )


def _space(request: TuneRequest, config: SimulationConfig, cohort: int) -> Space:
    return make_space(
        request.modes,
        request.rules,
        request.searched,
        clipping_norm=_clipping_norm(config),
        cohort=cohort,
        noise_on=request.noise_on,
    )


def _clipping_norm(config: SimulationConfig) -> float:
    if config.privacy.clipping_norm is None:
        raise ValueError("privacy.clipping_norm must be set: the search goes below it")
    return config.privacy.clipping_norm


def _note(
    cohort: int, config: SimulationConfig, population: Population, deployment: Deployment
) -> str:
    """Say what was tried on whom, and whether the result is an extrapolation."""
    at_hand = config.rounds.cohort_size_of(len(population.clients))
    tried = f"Tried with {at_hand} of {len(population.clients)} clients a round"
    if cohort == at_hand and deployment.population_size == len(population.clients):
        return f"{tried}."
    return (
        f"{tried}; extrapolated: their mean got the noise of a cohort of about {cohort:,} among "
        f"{deployment.population_size:,}."
    )


def _report(
    request: TuneRequest, results: "Results", measured: Sequence[Measurement], schema: Schema
) -> Tuned:
    try:
        best = recommended(measured, request.target_epsilon)
    except NothingWithinBudgetError as error:
        tell([str(error)])
        best = None
    crowds: list[Crowd] = []
    crowds_text = None
    if request.simulated_cohort is not None:
        crowds = least_crowds(
            measured,
            results.references,
            rounds=results.deployment.rounds,
            target_epsilon=request.target_epsilon,
            schema=schema,
        )
        crowds_text = results.write_crowds(crowds, request.target_epsilon)
    return Tuned(
        recommended=best,
        settings=None if best is None else results.write_settings(best, request.target_epsilon),
        crowds=crowds,
        crowds_text=crowds_text,
        trials=len(measured),
        out=str(results.out),
    )


class Results(NamedTuple):
    """A search's outcome, written into its folder; ``note`` says what was tried on whom."""

    out: Path
    deployment: Deployment
    note: str
    references: Sequence[Measurement]

    def write(self, measured: Sequence[Measurement]) -> None:
        """Write table and picture of what was measured so far."""
        write([*self.references, *measured], self.out, self.deployment, self.note)

    def write_settings(self, best: Measurement, target_epsilon: float) -> str:
        """Write the tables that deploy a setting, and return them."""
        text = fragment(best, self.deployment, target_epsilon=target_epsilon)
        write_atomically(self.out / SETTINGS_FILE, text.encode(), mode=READABLE)
        return text

    def write_crowds(self, crowds: Sequence[Crowd], target_epsilon: float) -> str:
        """Write the table of populations, and return it."""
        text = crowds_markdown(crowds, target_epsilon=target_epsilon, rounds=self.deployment.rounds)
        write_atomically(self.out / CROWD_FILE, text.encode(), mode=READABLE)
        return text
