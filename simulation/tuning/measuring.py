"""Try a candidate: run it with every seed, and take the mean."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from models.vector.schema import SENT, Schema
from simulation.config.simulation import SimulationConfig, config_from
from simulation.figures.metrics import Figures
from simulation.figures.over_seeds import over_seeds
from simulation.figures.progress import Reporter, SearchProgress
from simulation.population.population import Population
from simulation.runs.runner import RunOptions, run_simulation
from simulation.tuning.candidate import (
    Candidate,
    Deployment,
    Promise,
    Rule,
    promise_of,
    rule_settings,
)
from simulation.tuning.early_stop import PERPLEXITY, Bar, Watch
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
    """The parts that all trials of a search share; ``folder`` has one run a candidate and seed."""

    tables: dict[str, Any]  # TOML values.
    deployment: Deployment
    population: Population
    seeds: Sequence[int]
    worker_count: int
    folder: Path
    progress: SearchProgress

    @property
    def schema(self) -> Schema:
        """Tensors that are sent: what noise and sensitivity are about."""
        return self._base().schema.with_roles(*SENT)

    def try_candidate(self, candidate: Candidate, bar: Bar) -> Measurement:
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
            deployment=self.deployment,
            cohort_at_hand=base.rounds.cohort_size_of(len(self.population.clients)),
            schema=self.schema,
        )
        watch = Watch(bar, promise.epsilon, round_count=base.rounds.cap)
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

    def try_without_noise(self, rule: Rule) -> Measurement:
        """Run a rule clipped as the preset clips, and without noise: the most there is to have."""
        tables = {
            **self.tables,
            "privacy": {"mode": "none", "clipping_norm": self._base().privacy.clipping_norm},
            "aggregation": msgspec.to_builtins(
                rule_settings(rule, _REFERENCE_STRENGTH, _REFERENCE_STEP)
            ),
        }
        finals = self._finals(tables, rule, None)
        return _measured(finals, self.seeds, candidate=None, name="no noise", rule=rule)

    def _finals(self, tables: dict[str, Any], rule: str, watch: Watch | None) -> list[Figures]:
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
    by_seed = dict(zip(seeds, finals, strict=True))
    perplexity = over_seeds({seed: final[PERPLEXITY] for seed, final in by_seed.items()})
    recall = over_seeds({seed: by_seed[seed][RECALL] for seed in perplexity.seeds})
    return Measurement(
        candidate=candidate,
        name=name,
        rule=rule,
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
        unknown_words=over_seeds({s: by_seed[s].get(UNKNOWN) for s in perplexity.seeds}).mean,
    )
