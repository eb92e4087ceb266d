"""Try a candidate: run it with every seed, and take the mean."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from models.vector.schema import SENT, Schema
from simulation.config.simulation import SimulationConfig, config_from
from simulation.figures.metrics import Figures, read_metrics
from simulation.figures.over_seeds import over_seeds
from simulation.figures.progress import Quiet, Reporter
from simulation.population.population import Population
from simulation.runs.runner import RunOptions
from simulation.runs.whole_run import RunStarter, Started, WholeRun
from simulation.tuning.candidate import (
    Candidate,
    Deployment,
    Promise,
    Rule,
    promise_of,
    rule_settings,
)
from simulation.tuning.early_stop import PERPLEXITY, Bar, HopelessError, Watch
from simulation.tuning.trial import trial_tables

RECALL = "valid_top3_recall"
UNKNOWN = "valid_unknown_words"
# Of the runs without noise that trials are compared with.
_REFERENCE_STRENGTH, _REFERENCE_STEP = 0.5, 1.0


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement of a candidate, by means and sample standard deviations over seeds.

    Attributes:
        candidate: The point; None for a run without noise.
        epsilon: ε that the deployment would spend against readers; None without noise.
        coordinator_epsilon: ε against the coordinator; None without noise, or where it sees updates
            before any.
        slot_count: M of the deployment; None without noise.
        noise_std: Noise on the aggregate, in parameter units; 0 without noise.
        perplexity: On the validation text; infinity if all seeds are lost.
        perplexity_spread: 0 for one seed, as ``recall_spread``.
        recall: Top-3 recall on the validation text; 0 if all seeds are lost.
        seeds: Seeds that were run, and whose model did not diverge.
        lost: Seeds whose model diverged.
        unknown_words: Share of the validation text's words that the list does not have; None of a
            task without words, if all seeds are lost, and where a version measured that took
            ``<eos>`` for a word: its recall compares with its like only.
    """

    candidate: Candidate | None
    name: str
    rule: str
    epsilon: float | None
    coordinator_epsilon: float | None = None
    slot_count: int | None
    noise_std: float
    perplexity: float
    perplexity_spread: float
    recall: float
    recall_spread: float
    seeds: tuple[int, ...]
    lost: tuple[int, ...] = ()
    unknown_words: float | None = None


class Laboratory(NamedTuple):
    """The parts that all trials of a search share.

    Attributes:
        worker_count: Processes that train in each run.
        folder: It has one run a candidate and seed.
        starter: Where the runs are made.
    """

    tables: dict[str, Any]  # TOML values.
    deployment: Deployment
    population: Population
    seeds: Sequence[int]
    worker_count: int
    folder: Path
    starter: RunStarter

    @property
    def schema(self) -> Schema:
        """Tensors that are sent: what noise and sensitivity are about."""
        return self._base().schema.with_roles(*SENT)

    def try_candidate(self, candidate: Candidate, bar: Bar) -> "Trial":
        """Start a candidate's run with every seed; ``bar`` says when it is not worth going on.

        Raises:
            UnprovedSensitivityError: If nothing can be promised of it.
        """
        base = self._base()
        promise = promise_of(candidate, self.deployment, self.schema)
        tables = trial_tables(
            self.tables,
            candidate,
            promise,
            deployment=self.deployment,
            cohort_at_hand=base.rounds.cohort_size_of(len(self.population.clients)),
            schema=self.schema,
        )
        watch = Watch(bar, promise.epsilon, base.rounds.cap)
        runs = self._start(tables, candidate.rule, watch)
        return Trial(runs, candidate.mode, candidate.rule, candidate, promise, watch)

    def try_without_noise(self, rule: Rule) -> "Trial":
        """Start a rule clipped as the preset clips and without noise: the most there is to have."""
        tables = {
            **self.tables,
            "privacy": {"mode": "none", "clipping_norm": self._base().privacy.clipping_norm},
            "aggregation": msgspec.to_builtins(
                rule_settings(rule, _REFERENCE_STRENGTH, _REFERENCE_STEP)
            ),
        }
        return Trial(self._start(tables, rule, Quiet()), "no noise", rule)

    def _start(self, tables: dict[str, Any], rule: str, reporter: Reporter) -> "dict[int, SeedRun]":
        runs = {}
        for seed in self.seeds:
            seeded = {**tables, "seed": seed}
            folder = self.folder / _name_of(tables) / f"seed-{seed}"
            run = WholeRun(
                f"{rule}, seed {seed}",
                config_from(seeded, "trial"),
                seeded,
                lambda: self.population,
                folder,
                RunOptions(worker_count=self.worker_count, reporter=reporter),
            )
            runs[seed] = SeedRun(self.starter.start(run), folder)
        return runs

    def _base(self) -> SimulationConfig:
        return config_from(self.tables, "the preset")


def _name_of(tables: Mapping[str, Any]) -> str:
    """Return a folder name that another configuration does not have."""
    return hashlib.sha256(msgspec.json.encode(tables, order="deterministic")).hexdigest()[:16]


class SeedRun(NamedTuple):
    """A trial's run with one seed, and its folder."""

    started: Started
    folder: Path


class Trial(NamedTuple):
    """A candidate under way, or a rule without noise, which has no promise and no watch."""

    runs: Mapping[int, SeedRun]
    name: str
    rule: str
    candidate: Candidate | None = None
    promise: Promise | None = None
    watch: Watch | None = None

    def measure(self) -> Measurement:
        """Wait for the runs, in the order of the seeds, and take the mean.

        Raises:
            HopelessError: If the trial is not worth going on; the seeds that are left are dropped.
        """
        finals: dict[int, Figures] = {}
        try:
            for seed, run in self.runs.items():
                finals[seed] = run.started.result()
                if self.watch is not None:
                    self.watch.finished(finals[seed])
        except HopelessError:
            for run in self.runs.values():
                run.started.drop()
            raise
        return self._measured(finals)

    def raise_bar(self, bar: Bar, measured: Measurement) -> None:
        """Hold trials to come against this one, which was measured to its end."""
        epsilon = measured.epsilon or 0.0
        bar.passed(epsilon, measured.perplexity)
        for run in self.runs.values():
            bar.was_at(epsilon, read_metrics(run.folder))

    def _measured(self, by_seed: Mapping[int, Figures]) -> Measurement:
        perplexity = over_seeds({seed: final[PERPLEXITY] for seed, final in by_seed.items()})
        recall = over_seeds({seed: by_seed[seed][RECALL] for seed in perplexity.seeds})
        promise = self.promise
        return Measurement(
            candidate=self.candidate,
            name=self.name,
            rule=self.rule,
            epsilon=None if promise is None else promise.epsilon,
            coordinator_epsilon=None if promise is None else promise.coordinator_epsilon,
            slot_count=None if promise is None else promise.slot_count,
            noise_std=0.0 if promise is None else promise.noise_std,
            perplexity=math.inf if perplexity.mean is None else perplexity.mean,
            perplexity_spread=perplexity.spread or 0.0,
            recall=recall.mean or 0.0,
            recall_spread=recall.spread or 0.0,
            seeds=perplexity.seeds,
            lost=perplexity.lost,
            unknown_words=over_seeds(
                {seed: by_seed[seed].get(UNKNOWN) for seed in perplexity.seeds}
            ).mean,
        )
