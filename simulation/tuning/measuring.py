"""Try a candidate: run it with every seed, and stop as soon as it cannot be worth it."""

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from models.model_settings import schema_of
from models.schema import Schema
from simulation.config import SimulationConfig, config_from
from simulation.metrics import Figures
from simulation.population import Population
from simulation.progress import Reporter
from simulation.runner import RunOptions, run_simulation
from simulation.tuning.candidate import Candidate, Deployment, Promise, promise_of, trial_tables
from simulation.tuning.progress import SearchProgress

PERPLEXITY, RECALL = "valid_perplexity", "valid_top3_recall"


class HopelessError(Exception):
    """Raised when a better model at no larger epsilon is known, or training diverged."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a candidate came to.

    Attributes:
        candidate: The point; None for a run without noise.
        name: How tables call it.
        rule: Aggregation rule.
        epsilon: ε that the deployment would spend; None without noise.
        slot_count: M of the deployment; None without noise.
        noise_std: Noise on the aggregate, in parameter units; 0 without noise.
        perplexity: Mean validation perplexity over the seeds.
        perplexity_spread: Sample standard deviation; 0 for one seed.
        recall: Mean top-3 recall on the validation text.
        recall_spread: Sample standard deviation; 0 for one seed.
        seeds: Seeds that were run.
    """

    candidate: Candidate | None
    name: str
    rule: str
    epsilon: float | None
    slot_count: int | None
    noise_std: float
    perplexity: float
    perplexity_spread: float
    recall: float
    recall_spread: float
    seeds: tuple[int, ...]


class Laboratory(NamedTuple):
    """Hold what every trial of a search shares.

    Attributes:
        tables: The preset's TOML.
        deployment: For whom promises are made.
        population: The clients at hand.
        seeds: Seeds of each trial.
        worker_count: Processes that train.
        folder: Where runs lie, one folder a candidate and seed.
        progress: Shows how it goes.
    """

    tables: dict[str, Any]  # TOML values.
    deployment: Deployment
    population: Population
    seeds: Sequence[int]
    worker_count: int
    folder: Path
    progress: SearchProgress

    @property
    def schema(self) -> Schema:
        """Tensors of the model."""
        return schema_of(self._base().model)

    def try_candidate(self, candidate: Candidate, bar: "Bar") -> Measurement:
        """Run a candidate with every seed.

        Raises:
            HopelessError: If it is not worth going on.
        """
        base = self._base()
        promise = promise_of(candidate, self.deployment, self.schema)
        tables = trial_tables(
            self.tables,
            candidate,
            promise,
            cohort_at_hand=base.rounds.cohort_size_of(len(self.population.clients)),
            schema=self.schema,
        )
        watch = _Watch(bar, promise.epsilon)
        finals = self._finals(tables, candidate.rule, watch)
        watch.passed()
        return _measured(
            finals,
            self.seeds,
            candidate=candidate,
            name=candidate.mode,
            rule=candidate.rule,
            promise=promise,
        )

    def try_without_noise(self, rule: str, aggregation: dict[str, Any]) -> Measurement:
        """Run a rule clipped as the preset clips, and without noise: the most there is to have."""
        tables = {
            **self.tables,
            "privacy": {"mode": "none", "clipping_norm": self._base().privacy.clipping_norm},
            "aggregation": aggregation,
        }
        finals = self._finals(tables, rule, None)
        return _measured(finals, self.seeds, candidate=None, name="no noise", rule=rule)

    def _finals(self, tables: dict[str, Any], rule: str, watch: "_Watch | None") -> list[Figures]:
        finals = []
        for seed in self.seeds:
            seeded = {**tables, "seed": seed}
            config = config_from(seeded, "trial")
            folder = self.folder / _name_of(tables) / f"seed-{seed}"
            shown = self.progress.run_started(f"{rule}, seed {seed}", config.rounds.cap)
            reporter: Reporter = shown if watch is None else watch.beside(shown)
            options = RunOptions(worker_count=self.worker_count, reporter=reporter)
            final = run_simulation(config, seeded, self.population, folder, options)
            finals.append(final)
            if watch is not None:
                watch.finished(final)
        return finals

    def _base(self) -> SimulationConfig:
        return config_from(self.tables, "the preset")


class Bar:
    """Know the best perplexity so far at each epsilon, by round and at the end."""

    def __init__(self, *, slack: float = 1.25) -> None:
        """Start without any.

        Args:
            slack: How much worse a run may be on the way, as it may catch up.
        """
        self._slack = slack
        self._finals: list[tuple[float, float]] = []
        self._rounds: dict[int, list[tuple[float, float]]] = {}

    def passed(self, epsilon: float, perplexity: float) -> None:
        """Note a finished trial."""
        self._finals.append((epsilon, perplexity))

    def was_at(self, round_number: int, epsilon: float, perplexity: float) -> None:
        """Note a run on its way."""
        self._rounds.setdefault(round_number, []).append((epsilon, perplexity))

    def is_hopeless_at(self, round_number: int, epsilon: float, perplexity: float) -> bool:
        """Tell whether others were far better at this round for no larger epsilon."""
        return perplexity > self._slack * _least(self._rounds.get(round_number, ()), epsilon)

    def is_hopeless(self, epsilon: float, perplexity: float) -> bool:
        """Tell whether a whole trial was clearly better for no larger epsilon."""
        return perplexity > math.sqrt(self._slack) * _least(self._finals, epsilon)


class _Watch:
    """Hear of one trial's rounds, and end it where the bar says so."""

    def __init__(self, bar: Bar, epsilon: float) -> None:
        self._bar = bar
        self._epsilon = epsilon
        self._shown: Reporter | None = None
        self._seen: list[tuple[int, float]] = []

    def beside(self, reporter: Reporter) -> "_Watch":
        self._shown = reporter
        return self

    def round_finished(self, figures: Figures) -> None:
        if self._shown is not None:
            self._shown.round_finished(figures)
        perplexity = figures.get(PERPLEXITY)
        if not isinstance(perplexity, int | float):
            return
        number = int(figures["round"] or 0)
        if not math.isfinite(perplexity):
            raise HopelessError(f"perplexity is {perplexity} at round {number}")
        if self._bar.is_hopeless_at(number, self._epsilon, perplexity):
            raise HopelessError(f"perplexity {perplexity:.1f} at round {number} is far behind")
        self._seen.append((number, perplexity))

    def finished(self, final: Figures) -> None:
        perplexity = float(final[PERPLEXITY] or math.inf)
        if self._bar.is_hopeless(self._epsilon, perplexity):
            raise HopelessError(f"perplexity {perplexity:.1f} after one seed is beaten")

    def passed(self) -> None:
        # Only now: a trial is not held against its own other seeds.
        for number, perplexity in self._seen:
            self._bar.was_at(number, self._epsilon, perplexity)


def _least(points: Sequence[tuple[float, float]], epsilon: float) -> float:
    return min((value for spent, value in points if spent <= epsilon), default=math.inf)


def _name_of(tables: Mapping[str, Any]) -> str:
    """Return a folder name that another configuration does not have."""
    return hashlib.sha256(msgspec.json.encode(tables, order="deterministic")).hexdigest()[:16]


def _measured(
    finals: Sequence[Figures],
    seeds: Sequence[int],
    *,
    candidate: Candidate | None,
    name: str,
    rule: str,
    promise: Promise | None = None,
) -> Measurement:
    perplexities = [float(final[PERPLEXITY] or math.inf) for final in finals]
    recalls = [float(final[RECALL] or 0.0) for final in finals]
    return Measurement(
        candidate=candidate,
        name=name,
        rule=rule,
        epsilon=None if promise is None else promise.epsilon,
        slot_count=None if promise is None else promise.slot_count,
        noise_std=0.0 if promise is None else promise.noise_std,
        perplexity=statistics.fmean(perplexities),
        perplexity_spread=_spread(perplexities),
        recall=statistics.fmean(recalls),
        recall_spread=_spread(recalls),
        seeds=tuple(seeds),
    )


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
