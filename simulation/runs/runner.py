"""Run a simulation from its configuration to its final figures, resuming what a stop left.

A round's figures are written before its checkpoint, so a run killed between the two repeats that
round and writes the same line. Checkpoints come at the best evaluation, at the end, and otherwise
at most every few seconds.
"""

import hashlib
import time
from collections.abc import Mapping
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edge_client.descent.compute import prepare_compute
from models.networks.flat_parameters import parameters_sha256
from models.plan.plan import Plan
from models.tasks.metrics import Counts
from privacy.accounting.budget import BudgetExceededError
from privacy.accounting.ledger_chain import LedgerError
from privacy.noise.plan_events import sampled_places
from privacy.noise.secure_gaussian import NoiseKeys
from server.budget.spent_figures import figures_of_spent
from server.config.convergence import ConvergenceTracker, Verdict
from server.config.plans import make_plan
from server.releases.files import NewRelease
from server.releases.publishing import NO_PREVIOUS
from simulation.config.attack import check_attack
from simulation.config.simulation import SimulationConfig
from simulation.figures.followed import check_followed, followed_perplexity
from simulation.figures.metrics import Figures, MetricsWriter, Value, read_metrics, round_of
from simulation.figures.progress import Quiet, Reporter, tell
from simulation.figures.threshold import Threshold
from simulation.population.population import Population
from simulation.rounds.attacks import Attackers
from simulation.rounds.federation import Federation
from simulation.rounds.guarded_run import GuardedRun
from simulation.runs.asked_devices import AskedDevices
from simulation.runs.checkpoint import (
    CheckpointError,
    RunDescription,
    RunFolder,
    milestones,
    start_of,
)
from simulation.runs.last_figures import LastFigures
from simulation.runs.measuring import Measures
from simulation.runs.start_check import check_start
from simulation.workers.engine import Engine
from simulation.workers.local import LocalWorkers
from simulation.workers.pool import WorkerPool

_CHECKPOINT_SECONDS = 20.0


class RunOptions(NamedTuple):
    """The options of a run; only ``together`` and ``device`` change results, by rounding.

    Attributes:
        worker_count: Processes that train, at least 1.
        reporter: Hears of every round.
        until: Stop as soon as this is reached.
        kept_every: Keep every so manyth round's model too, to look back at; 0 for none of them.
        together: Clients that one process trains at once (``simulation.workers.batched_training``).
        device: ``cpu`` or ``cuda``, for training; ``engine`` is where.
    """

    worker_count: int = 1
    with_tensorboard: bool = False
    reporter: Reporter = Quiet()
    until: Threshold | None = None
    kept_every: int = 0
    together: int = 1
    device: str = "cpu"
    engine: Engine = LocalWorkers


def run_simulation(
    config: SimulationConfig,
    tables: Mapping[str, Any],  # TOML values.
    population: Population,
    out: Path,
    options: RunOptions,
    *,
    noise_keys: NoiseKeys | None = None,
) -> Figures:
    """Run to the end, or go on from the last checkpoint, and return the final figures.

    The TOML ``tables`` of the configuration are recorded, and compared when resuming. Only tests
    give ``noise_keys``, to repeat calibrated noise.

    Raises:
        CheckpointError: If the folder cannot be resumed; RunFileError if it holds another run.
        PopulationError: If the clients hold out nothing that the run could be followed by.
        SimulationError: If a round cannot be held.
        WorkerError: If a worker process died.
    """
    # The coordinator's side of the bit-identity with a deployment: one thread an operation.
    prepare_compute("cpu", threads=1, model=config.model)
    plan = _plan(config, tables, population)
    check_start(config, plan, out)
    description = RunDescription(
        run=plan.run, seed=config.seed, configuration=dict(tables), until=options.until
    )
    # A finished run is read, not made again.
    folder = RunFolder(out, description)
    final = folder.final_figures()
    if final is not None:
        return final
    # The parts of the run, and the processes that train.
    check_followed(config, population)
    attackers = _attackers(config, population)
    guarded = (
        GuardedRun(
            out,
            config,
            plan.run,
            list(population.clients),
            releases=folder.releases,
            noise_keys=noise_keys,
        )
        if config.privacy.guarantees_privacy
        else None
    )
    with (
        closing(guarded) if guarded else nullcontext(),
        WorkerPool(
            plan,
            attackers.named_examples(population) if attackers else population.named_examples(),
            worker_count=options.worker_count,
            states=folder.states,
            optimisers=folder.optimisers,
            together=options.together,
            engine=partial(options.engine, device=options.device),
        ) as pool,
    ):
        return _Run(
            config,
            plan,
            population,
            folder=folder,
            pool=pool,
            guarded=guarded,
            options=options,
            attackers=attackers,
        ).to_the_end()


class _Run:
    def __init__(
        self,
        config: SimulationConfig,
        plan: Plan,
        population: Population,
        *,
        folder: RunFolder,
        pool: WorkerPool,
        guarded: GuardedRun | None,
        options: RunOptions,
        attackers: Attackers | None,
    ) -> None:
        self._attackers = attackers
        self._config = config
        self._plan = plan
        self._population = population
        self._folder = folder
        self._pool = pool
        self._guarded = guarded
        self._options = options
        self._measures = Measures(plan, population, pool)
        self._asked = (
            AskedDevices(config, population, self._measures, guarded)
            if guarded is not None and config.evaluation.kind == "devices"
            else None
        )
        self._last_figures = LastFigures(
            config, population, folder=folder, measures=self._measures, attackers=attackers
        )
        self._tracker = ConvergenceTracker(config.convergence)
        self._milestones = milestones(config, options.kept_every)
        self._saved_at = time.monotonic()
        self._federation = self._at_last_checkpoint()
        for row in read_metrics(folder.folder):
            if round_of(row) <= self._federation.round_number:
                self._observe(row)

    def to_the_end(self) -> Figures:
        """Run every round that is left, then measure the model on the test split."""
        federation = self._federation
        with MetricsWriter(
            self._folder.folder,
            keep_rounds=federation.round_number,
            with_tensorboard=self._options.with_tensorboard,
        ) as metrics:
            self._complete(metrics)
            while not federation.is_finished:
                before = parameters_sha256(federation.parameters)
                figures = self._run_round()
                if figures is None:
                    break
                is_best = self._evaluate(figures)
                if self._guarded is not None:
                    # Nothing of a model is shown before its entry is in the ledger.
                    self._save(figures, before, is_best=is_best)
                metrics.write(figures)
                self._options.reporter.round_finished(figures)
                if self._guarded is None:
                    self._save(figures, before, is_best=is_best)
        final = self._last_figures.measure(federation, self._tracker.best_round)
        self._folder.finish(final)
        return final

    def _complete(self, metrics: MetricsWriter) -> None:
        """Write the line of a recorded round, if the run was killed before it."""
        newest = self._folder.newest(self._population.vocabulary) if self._guarded else None
        written = max((round_of(row) for row in read_metrics(self._folder.folder)), default=0)
        if newest is not None and newest.record.round > written:
            metrics.write(newest.record.metrics)

    def _run_round(self) -> dict[str, Value] | None:
        """Run a round and report the budget; None, and the run is over, if it would overspend."""
        if self._guarded is None:
            return self._federation.run_round()
        number = self._federation.round_number + 1
        try:
            # Asked before the model grows for a round that is not to be.
            self._guarded.admit(number, 0)
            figures = self._federation.run_round()
        except BudgetExceededError as error:
            tell([f"the run ends before round {number}: {error}"])
            self._federation.finish()
            return None
        except LedgerError as error:
            raise CheckpointError(f"{self._folder.folder}: {error}") from None
        return {**figures, **figures_of_spent(self._config.privacy, self._guarded.spent)}

    def _at_last_checkpoint(self) -> Federation:
        if self._guarded is not None:
            self._guarded.recover(self._folder.releases)
        newest = self._folder.newest(self._population.vocabulary)
        self._folder.rewind(0 if newest is None else newest.record.round)
        federation = Federation(
            self._config,
            self._plan,
            list(self._population.clients),
            self._pool,
            start=None if newest is None else start_of(newest),
            guard=self._guarded,
            attackers=self._attackers,
            releases=self._folder.releases,
        )
        if newest is None and (self._guarded is not None or self._config.aggregation.look_back):
            initial = self._release(federation, {}, NO_PREVIOUS)
            self._folder.save(initial, best_round=None, guarded=self._guarded)
        return federation

    def _kept_rounds(self, round_number: int) -> set[int]:
        """Return the rounds whose releases are kept beside the newest and the best."""
        back = self._config.aggregation.look_back
        looked_at = range(max(0, round_number - back), round_number)
        return {*self._milestones, *looked_at}

    def _evaluate(self, figures: dict[str, Value]) -> bool:
        """Add the validation figures where they are due; tell whether the model is the best."""
        if not self._config.evaluation.is_due(self._federation.round_number):
            return False
        federation, measures = self._federation, self._measures
        # What clients hold out is private: under a guarantee nothing is told of it on the way.
        tells = self._guarded is None
        started = time.perf_counter()
        if self._asked is not None:
            figures |= self._asked.figures(federation)
            figures["evaluation_s"] = time.perf_counter() - started
            return self._observe(figures)
        own = self._own("valid", federation.round_number) if tells else {}
        figures |= measures.figures(federation, "valid", own)
        if tells:
            figures |= measures.of_clients(self._own("test", federation.round_number))
        figures["evaluation_s"] = time.perf_counter() - started
        return self._observe(figures)

    def _own(self, split: str, round_number: int) -> Mapping[str, Counts]:
        return self._measures.clients(self._federation, split, round_number=round_number)

    def _observe(self, figures: Figures) -> bool:
        """Follow the model on the validation split; end the run at convergence or its goal."""
        until, perplexity = self._options.until, followed_perplexity(figures)
        verdict = Verdict(is_best=False, has_converged=False)
        if perplexity is not None:
            verdict = self._tracker.observe(int(figures["round"] or 0), perplexity)
        if verdict.has_converged or (until is not None and until.is_reached(figures)):
            self._federation.finish()
        return verdict.is_best

    def _save(self, figures: Figures, before: bytes, *, is_best: bool) -> None:
        """Write a checkpoint if one is due: best model, a milestone, or once in a while."""
        waited = time.monotonic() - self._saved_at
        is_end = self._federation.is_finished or self._federation.round_number in self._milestones
        is_due = is_best or is_end or waited >= _CHECKPOINT_SECONDS
        # Under a guarantee every round is recorded: one that is lost would be paid for twice. And a
        # rule may look back to it.
        is_needed = bool(self._config.aggregation.look_back)
        if not is_due and self._guarded is None and not is_needed:
            return
        self._folder.save(
            self._release(self._federation, figures, before),
            best_round=self._tracker.best_round,
            milestones=self._kept_rounds(self._federation.round_number),
            guarded=self._guarded,
            took_part=self._federation.took_part,
        )
        self._saved_at = time.monotonic()

    def _release(self, federation: Federation, figures: Figures, before: bytes) -> NewRelease:
        return NewRelease(
            round_number=federation.round_number,
            attempt=0,
            plan=federation.plan,
            vocabulary=self._population.vocabulary,
            parameters=federation.parameters.numpy(),
            previous_sha256=before,
            metrics=dict(figures),
            guarantee=federation.plan.privacy.guarantee,
            personalisation=federation.method.encoded(),
        )


def _attackers(config: SimulationConfig, population: Population) -> Attackers | None:
    """Draw who attacks; more than the rule stands in a cohort of this population are refused."""
    if config.attack is None:
        return None
    clients = list(population.clients)
    places = config.rounds.cohort_size_of(len(clients))
    check_attack(config.attack, config.task, config.aggregation, places, privacy=config.privacy)
    return Attackers(config.attack, clients, seed=config.seed)


def _plan(config: SimulationConfig, tables: Mapping[str, Any], population: Population) -> Plan:
    """Return the run's plan, whose identifier follows from what the run computes."""
    described = msgspec.json.encode(tables, order="deterministic")
    return make_plan(
        config,
        hashlib.sha256(described).hexdigest()[:32],
        cohort_size=sampled_places(config.rounds, config.privacy)
        or config.rounds.cohort_size_of(len(population.clients)),
        vocabulary=population.vocabulary,
    )
