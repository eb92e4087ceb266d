"""Compare noise on the weighted mean with noise on the sums that it is divided from.

Both get the same noise multiplier and clipping norm, so they spend the same epsilon. Figures
(``--json`` prints them as one object), K the attention strength and Z the multiplier:

    sums_over_mean_kappa_K           Noise of the released mean with noise on sums, over that with
                                     noise on the mean, by the formulas: 100 clients, six layers
                                     clipped one by one, each at 0.2 to 0.4 of its clip.
    measured_sums_over_mean_kappa_K  The same, measured on what closes of such a round release.
    perplexity_ON_kappa_K_z_Z,       Test perplexity and top-3 recall of a keyboard trained with the
    recall_ON_kappa_K_z_Z            noise of a cohort of ``--cohort`` on the clients at hand, as
                                     ``sotto-simulate tune`` tries it; ON is ``mean`` or ``sums``,
                                     and both take steps of the same length.

    python -m benchmarks.noised_sums --quick
    python -m benchmarks.noised_sums --preset keyboard-sms-scratch --data DATA

``--quick`` trains one setting of the embedded text with one seed.
"""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from benchmarks.parts.figures import benchmark_parser, show_figures
from models.vector.schema import SENT, Schema, TensorSpec
from privacy.noise.calibrated_settings import CentralNoise
from server.aggregation.sensitivity import noised_sensitivity
from server.aggregation.settings import AttentiveSettings
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution
from simulation.config.simulation import config_from, read_tables
from simulation.figures.over_seeds import over_seeds
from simulation.population.dealing import build_population
from simulation.population.population import Population
from simulation.runs.runner import RunOptions, run_simulation
from simulation.tuning.candidate import Candidate, Deployment, promise_of
from simulation.tuning.trial import trial_tables
from simulation.workers.processors import processor_count

CLIENTS, LAYERS, WIDTH = 100, 6, 20_000
STRENGTHS = (0.0, 0.5, 1.0, 2.0)
POPULATION = 1_000_000
SIDES: tuple[Literal["mean", "sums"], ...] = ("mean", "sums")
SCHEMA = Schema(
    tuple(
        TensorSpec(name=f"layer{index}.weight", shape=(WIDTH,), layer=f"layer{index}")
        for index in range(LAYERS)
    )
)
# So small that the weights are known to a hundredth of a client, and rounding to the grid smaller.
MULTIPLIER = 0.001

Tables = dict[str, Any]  # TOML values.


def noise_ratios() -> dict[str, float]:
    """Return the noise of both sides against each other, by formula and as measured."""
    figures: dict[str, float] = {}
    fractions = np.random.default_rng(1).uniform(0.2, 0.4, size=(CLIENTS, LAYERS))
    for strength in STRENGTHS:
        stds = {side: _expected_std(side, strength, fractions) for side in SIDES}
        figures[f"sums_over_mean_kappa_{strength:g}"] = stds["sums"] / stds["mean"]
    for strength in STRENGTHS:
        measured = {side: _measured_std(side, strength, fractions) for side in SIDES}
        ratio = measured["sums"] / measured["mean"]
        figures[f"measured_sums_over_mean_kappa_{strength:g}"] = ratio
    return figures


def _expected_std(
    side: Literal["mean", "sums"], strength: float, fractions: np.ndarray[Any, Any]
) -> float:
    """Return the root mean square over layers of the noise at multiplier 1."""
    sensitivity = noised_sensitivity(
        AttentiveSettings(attention_strength=strength),
        SCHEMA,
        _privacy(side),
        slot_count=CLIENTS,
        adjacency="zero-out",
    )
    if side == "mean":
        return sensitivity
    totals = np.exp(strength * (fractions - 1)).sum(axis=0)
    return float(sensitivity * np.sqrt(np.mean(totals**-2.0)))


def _measured_std(
    side: Literal["mean", "sums"], strength: float, fractions: np.ndarray[Any, Any]
) -> float:
    """Return the standard deviation of elements that nobody moved, of a round closed so."""
    clip = 1 / math.sqrt(LAYERS)

    def update(row: np.ndarray[Any, Any]) -> Tensor:
        values = torch.zeros(SCHEMA.element_count)
        # All of a layer's norm in its first element.
        values[::WIDTH] = torch.from_numpy(row * clip).float()
        return values

    closed = close_round(
        torch.zeros(SCHEMA.element_count),
        (Contribution(slot, update(row), 1) for slot, row in enumerate(fractions)),
        Closing(
            schema=SCHEMA,
            aggregation=AttentiveSettings(attention_strength=strength),
            privacy=_privacy(side),
            slot_count=CLIENTS,
            generator=torch.Generator(),
            round_number=1,
        ),
    )
    still = closed.parameters.view(LAYERS, WIDTH)[:, 1:]
    return float(still.double().square().mean().sqrt()) / MULTIPLIER


def _privacy(side: Literal["mean", "sums"]) -> CentralNoise:
    return CentralNoise(
        clipping_norm=1.0,
        clipping="per-layer",
        noise_multiplier=MULTIPLIER,
        delta=1e-6,
        epsilon_budget=1e12,
        adjacency="zero-out",
        noise_on=side,
    )


def candidates(
    strengths: tuple[float, ...], multipliers: tuple[float, ...], *, clip: float, cohort: int
) -> Iterator[Candidate]:
    """Yield what is trained, both sides of a setting after each other."""
    for multiplier in multipliers:
        for strength in strengths:
            for side in SIDES:
                yield Candidate(
                    mode="central",
                    rule="attentive",
                    noise_multiplier=multiplier,
                    clipping_norm=clip,
                    attention_strength=strength,
                    cohort=cohort,
                    server_step_size=1.0,
                    noise_on=side,
                )


def train(
    candidate: Candidate, tables: Tables, population: Population, seeds: range, folder: Path
) -> dict[str, float]:
    """Return test perplexity and recall of a candidate, means over the seeds."""
    config = config_from(tables, "the preset")
    schema = config.schema.with_roles(*SENT)
    deployment = Deployment(population_size=POPULATION, rounds=config.rounds.cap, delta=1e-7)
    # A mean over places steps less far the more of them stay empty; both sides step alike here.
    step = 1 / promise_of(candidate, deployment, schema).fill
    candidate = msgspec.structs.replace(candidate, server_step_size=step)
    trial = trial_tables(
        tables,
        candidate,
        promise_of(candidate, deployment, schema),
        deployment=deployment,
        cohort_at_hand=config.rounds.cohort_size_of(len(population.clients)),
        schema=schema,
    )
    name = (
        f"{candidate.noise_on}_kappa_{candidate.attention_strength:g}"
        f"_z_{candidate.noise_multiplier:g}"
    )
    finals = {}
    for seed in seeds:
        seeded = {**trial, "seed": seed}
        options = RunOptions(worker_count=processor_count())
        finals[seed] = run_simulation(
            config_from(seeded, "trial"), seeded, population, folder / f"{name}-{seed}", options
        )
    figures = {}
    for figure, key in (("perplexity", "test_perplexity"), ("recall", "test_top3_recall")):
        found = over_seeds({seed: final[key] for seed, final in finals.items()})
        figures[f"{figure}_{name}"] = math.inf if found.mean is None else found.mean
        if found.spread is not None and len(seeds) > 1:
            figures[f"{figure}_spread_{name}"] = found.spread
    return figures


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="the embedded text, one seed, two trainings")
    parser.add_argument("--preset", default="keyboard-tiny", help="preset of a simulation")
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--cohort", type=int, default=100, help="people of a deployed round")
    parser.add_argument("--clip", type=float, default=5.0, help="clipping norm")
    parser.add_argument("--rounds", type=int, help="rounds (default: the preset's)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds")
    asked = parser.parse_args()
    quick = asked.quick
    figures = noise_ratios()
    tables = read_tables(asked.preset)
    if asked.rounds is not None:
        tables["rounds"]["cap"] = asked.rounds
    population = build_population(config_from(tables, asked.preset), asked.data)
    strengths, multipliers = ((1.0,), (1.0,)) if quick else ((0.0, 0.5, 1.0), (0.5, 1.0, 2.0))
    with tempfile.TemporaryDirectory() as folder:
        for candidate in candidates(strengths, multipliers, clip=asked.clip, cohort=asked.cohort):
            seeds = range(1, 2 if quick else asked.seeds + 1)
            figures |= train(candidate, tables, population, seeds, Path(folder))
    show_figures(figures, "Noise on sums", as_json=asked.json)


if __name__ == "__main__":
    main()
