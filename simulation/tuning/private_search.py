"""Tune on private data: a random number of runs at random settings, and only the best leaves.

Every run spends the same epsilon, by the preset's own noise mode and rounds; clipping norm,
attention strength and server step do not change it. Runs are compared on a public text. Nothing but
the winner is shown or kept, not even how many runs there were.

References:
    Papernot and Steinke, ICLR 2022, arXiv:2110.03620 (``privacy.accounting.private_selection``).
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from privacy.accounting.private_selection import draw_run_count, epsilon_of_best
from privacy.noise.calibrated_settings import CentralNoise
from server.releases.public_evaluation import PublicText
from simulation.config.simulation import SimulationConfig, config_from
from simulation.figures.metrics import Figures
from simulation.figures.progress import Quiet, tell
from simulation.population.population import TextPopulation
from simulation.runs.runner import RunOptions, run_simulation
from simulation.tuning.space import Range, Space, draw

# What one person's share of the noise does not depend on.
VARIED = ("clipping_norm", "attention_strength", "server_step_size")


class PrivateSearch(NamedTuple):
    """The parts that the runs share.

    Attributes:
        tables: The preset's TOML; its mode is ``central`` with sampled cohorts.
        space: The random draw: of ``VARIED`` only, and rules.
        score_text: Public text that runs are compared on, one sentence or more a line.
        expected_runs: Mean number of runs, above 1.
        target_epsilon: Largest ε that the whole search may spend, at the preset's δ.
    """

    tables: dict[str, Any]  # TOML values.
    space: Space
    population: TextPopulation
    score_text: Path
    expected_runs: float
    target_epsilon: float
    worker_count: int


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """The best run, which is all that is published.

    Attributes:
        settings: The drawn tables ``privacy`` and ``aggregation``.
        perplexity: On the public text.
        epsilon: ε of the whole search, at the preset's ``delta``.
    """

    settings: dict[str, dict[str, Any]]  # TOML values.
    perplexity: float
    epsilon: float
    delta: float


def search_privately(search: PrivateSearch) -> Winner:
    """Do the runs in a folder that is gone afterwards, and return the best.

    Raises:
        ValueError: If the preset's mode does not amplify by secret coin flips, the search would
            spend more than its target, or the public text cannot be used; before any run.
    """
    config = config_from(search.tables, "the preset")
    privacy = _central(config)
    epsilon = epsilon_of_best(
        noise_multiplier=privacy.noise_multiplier,
        sampling_rate=config.rounds.participation_rate or 1.0,
        rounds=config.rounds.cap,
        delta=privacy.delta,
        expected_runs=search.expected_runs,
    )
    if not epsilon <= search.target_epsilon:
        raise ValueError(
            f"the whole search must spend at most epsilon {search.target_epsilon:g}, and would "
            f"spend {epsilon:.3g} at delta {privacy.delta:g}; raise privacy.noise_multiplier, or "
            "lower rounds.cap or the expected runs"
        )
    population = _with_public_text(search, config)
    source = random.SystemRandom()
    best: tuple[float, dict[str, dict[str, Any]]] | None = None
    # Neither a count nor a duration by run: both would tell of the number that is drawn.
    tell(["Searching; how many runs there are is secret, so there is no bar."])
    # Drawn before the first run, and from nothing that depends on the data.
    for _ in range(draw_run_count(search.expected_runs)):
        drawn = _drawn(search, source)
        perplexity = _perplexity(search, population, drawn, source.getrandbits(62))
        if best is None or perplexity < best[0]:
            best = perplexity, drawn
    if best is None:
        raise RuntimeError("a search must have at least one run")
    return Winner(settings=best[1], perplexity=best[0], epsilon=epsilon, delta=privacy.delta)


def _central(config: SimulationConfig) -> CentralNoise:
    if not isinstance(config.privacy, CentralNoise) or config.rounds.selection != "sampled":
        raise ValueError(
            'tuning on private data needs privacy.mode = "central" and rounds.selection = '
            '"sampled": every run must have a guarantee of its own; or pass --public if nobody\'s '
            "text is private"
        )
    return config.privacy


def _with_public_text(search: PrivateSearch, config: SimulationConfig) -> TextPopulation:
    """Return the clients with the public text as everything that is held out."""
    text = PublicText(search.score_text, search.population.vocabulary)
    held_out = {"valid": {"public": text.stream}, "test": {"public": text.stream}}
    if config.data.keystrokes:
        raise ValueError("data.keystrokes must be false: it is measured on private text")
    return replace(search.population, held_out=held_out, typed=())


def _drawn(search: PrivateSearch, source: random.Random) -> dict[str, dict[str, Any]]:
    candidate = draw(search.space, source)
    privacy = {**search.tables["privacy"], "clipping_norm": candidate.clipping_norm}
    return {"privacy": privacy, "aggregation": msgspec.to_builtins(candidate.aggregation)}


def _perplexity(
    search: PrivateSearch,
    population: TextPopulation,
    drawn: Mapping[str, dict[str, Any]],
    seed: int,
) -> float:
    tables = {**search.tables, **drawn, "seed": seed, "evaluation": {"kind": "none"}}
    tables.pop("convergence", None)
    config = config_from(tables, "trial")
    with TemporaryDirectory(prefix="sotto-private-tune-") as folder:
        options = RunOptions(worker_count=search.worker_count, reporter=Quiet())
        final: Figures = run_simulation(config, tables, population, Path(folder), options)
    return float(final["test_perplexity"] or float("inf"))


def check_varied(space: Space) -> None:
    """Refuse a space that varies what epsilon depends on.

    Raises:
        ValueError: If it does; names the dimension.
    """
    for name, dimension in space.dimensions.items():
        if name not in VARIED and (isinstance(dimension, Range) or len(dimension.values) > 1):
            raise ValueError(
                f"{name} cannot vary on private data, since every run must spend the same "
                f"epsilon; search only {', '.join(VARIED)}, or pass --public"
            )
