"""Run the subcommand ``tune`` on private data."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from simulation.commands.runs import Request
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.population.dealing import build_population
from simulation.population.population import as_text
from simulation.tuning.private_search import PrivateSearch, Winner, check_varied, search_privately
from simulation.tuning.space import Choices, Dimension, make_space
from simulation.tuning.toml import table_lines
from simulation.workers.processors import processor_count


class PrivateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The best run, as reported; ``text`` is a sentence for people, and the tables to deploy."""

    winner: Winner
    text: str


def tune_privately(
    request: Request,
    *,
    score_text: Path,
    expected_runs: float,
    target_epsilon: float,
    rules: Sequence[str],
    searched: Mapping[str, Dimension],
) -> PrivateResult:
    """Search by a random number of runs, and report the best alone.

    Raises:
        ValueError: If it asks for a cluster; otherwise as ``search_privately`` and
            ``check_varied``.
    """
    if request.engine != "local":
        raise ValueError(
            f"--engine {request.engine} cannot search on private data: a cluster's tasks would "
            "tell how many runs there were, which is secret; leave it out, or pass --public if "
            "nobody's text is private"
        )
    tables = with_settings(read_tables(request.name), request.settings)
    config = config_from(tables, request.name)
    space = make_space(
        ["central"],
        rules,
        {"noise_multiplier": Choices((1.0,)), **searched},
        clipping_norm=config.privacy.clipping_norm or 1.0,
        cohort=1,
    )
    check_varied(space)
    population = as_text(build_population(config, request.data))
    search = PrivateSearch(
        tables=tables,
        space=space,
        population=population,
        score_text=score_text,
        expected_runs=expected_runs,
        target_epsilon=target_epsilon,
        worker_count=request.worker_count or processor_count(),
    )
    winner = search_privately(search)
    return PrivateResult(winner=winner, text=_text(winner))


def _text(winner: Winner) -> str:
    lines = [
        f"# The search as a whole spent epsilon {winner.epsilon:.3g} at delta {winner.delta:g}, "
        "beside what the deployed run",
        f"# will spend. Perplexity of the best run on the public text: {winner.perplexity:.1f}.",
    ]
    for name, values in winner.settings.items():
        lines += table_lines(name, values)
    return "\n".join(lines) + "\n"
