"""Measure what buffered asynchronous rounds save where devices differ in speed by 1 to 20.

Figures (``--json`` prints them as one object):

    synchronous_s       Seconds of the simulated clock until the target perplexity, in rounds that
                        wait for a drawn cohort; ``over_selected_s`` in rounds that give a third
                        more leases and take the first; ``buffered_s`` in buffered ones.
    time_ratio          ``buffered_s`` over ``synchronous_s``; ``over_selected_time_ratio`` too.
    synchronous_mb, over_selected_mb, buffered_mb
                        What all devices received and sent until then, 10^6 bytes, unsealed; models
                        fetched for an update that came too late are among it.
    bytes_ratio         ``buffered_mb`` over ``synchronous_mb``; ``over_selected_bytes_ratio``.
    synchronous_releases, over_selected_releases, buffered_releases
                        Releases made until then.
    mean_staleness      Releases made while a device worked, mean over the buffered updates.
    target_perplexity   Validation perplexity that the synchronous run came to in its rounds.

All are means over the seeds. Every run trains the same model on the same clients, who are each as
slow in one as in the other: the slowness of a client is drawn so that its logarithm is even between
1 and ``--slowest``. The rounds without buffering are this project's own, at the same size.
"""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.parts.figures import benchmark_parser, show_figures
from simulation.config.overrides import parse_override
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.figures.metrics import Figures, read_metrics
from simulation.figures.threshold import Threshold
from simulation.population.dealing import build_population
from simulation.runs.runner import RunOptions, run_simulation

FIGURE = "valid_perplexity"
SPARE = 4 / 3
LONGEST = 6
"""Times as many releases as the synchronous run made, after which another has missed its target."""


class BenchmarkError(RuntimeError):
    """Raised when a run did not come to the target."""


class Setting(NamedTuple):
    """Say what is simulated.

    Attributes:
        preset: Preset of the simulations.
        data: Folder of its data, if it has any.
        clients: Clients that its data is dealt to; None leaves it as it is.
        cohort: Updates in a release.
        concurrency: Devices that work at a time in buffered rounds.
        rounds: Rounds of the synchronous run.
        slowest: How much slower the slowest may be than the fastest.
        max_staleness: Oldest update that counts in buffered rounds, in releases.
        exponent: How fast the worth of an update falls with its age there.
    """

    preset: str
    data: Path | None
    clients: int | None
    cohort: int
    concurrency: int
    rounds: int
    slowest: float
    max_staleness: int
    exponent: float

    def kinds(self) -> dict[str, list[str]]:
        """Return the settings of each kind of rounds, the synchronous ones first."""
        come = 'rounds.selection="first-come"'
        return {
            "synchronous": [],
            "over_selected": [come, f"rounds.over_selection={SPARE}"],
            "buffered": [
                come,
                f"rounds.buffered={{concurrency={self.concurrency}, "
                f"max_staleness={self.max_staleness}, staleness_exponent={self.exponent}}}",
            ],
        }


def rows_of(setting: Setting, changes: list[str], seed: int, target: float | None) -> list[Figures]:
    """Return the figures of every round of a run, to its end or the target."""
    cap = setting.rounds if target is None else LONGEST * setting.rounds
    all_changes = [
        f"seed={seed}",
        f"rounds.cap={cap}",
        f"rounds.cohort_size={setting.cohort}",
        f"rounds.quorum={setting.cohort}",
        "rounds.deadline_s=1e6",
        f"speeds.slowest={setting.slowest}",
        "evaluation.every_rounds=1",
        *changes,
    ]
    if setting.clients is not None:
        all_changes.append(f"data.client_count={setting.clients}")
    overrides = [parse_override(change) for change in all_changes]
    tables = with_settings(read_tables(setting.preset), overrides)
    config = config_from(tables, setting.preset)
    until = None if target is None else Threshold(FIGURE, target)
    with tempfile.TemporaryDirectory(prefix="sotto-asynchronous-") as folder:
        out = Path(folder) / "run"
        population = build_population(config, setting.data)
        run_simulation(config, tables, population, out, RunOptions(until=until))
        return read_metrics(out)


def of_kind(name: str, rows: Sequence[Figures], target: float) -> dict[str, float]:
    """Return what a run needed until the target."""
    reached = [place for place, row in enumerate(rows) if number(row, FIGURE) <= target]
    if not reached:
        raise BenchmarkError(
            f"{name} rounds did not come to a perplexity of {target:.1f} in {len(rows)} releases"
        )
    needed = rows[: reached[0] + 1]
    last = needed[-1]
    figures = {
        f"{name}_s": number(last, "clock_s"),
        f"{name}_mb": (number(last, "bytes_down") + number(last, "bytes_up")) / 1e6,
        f"{name}_releases": float(len(needed)),
    }
    if "mean_staleness" in last:
        figures["mean_staleness"] = statistics.fmean(
            number(row, "mean_staleness") for row in needed
        )
    return figures


def number(figures: Figures, name: str) -> float:
    """Return a figure that is a number."""
    value = figures[name]
    if not isinstance(value, int | float):
        raise BenchmarkError(f"{name} must be a number, got {value!r}")
    return float(value)


def compared(setting: Setting, seed: int) -> dict[str, float]:
    """Run all kinds of rounds with one seed."""
    (first, plain), *others = setting.kinds().items()
    rows = rows_of(setting, plain, seed, None)
    target = min(number(row, FIGURE) for row in rows)
    figures = {"target_perplexity": target, **of_kind(first, rows, target)}
    for name, changes in others:
        figures |= of_kind(name, rows_of(setting, changes, seed, target), target)
    return figures


def measure(setting: Setting, seeds: Sequence[int]) -> dict[str, float]:
    """Return the figures, means over the seeds, and their ratios."""
    runs = [compared(setting, seed) for seed in seeds]
    figures = {name: statistics.fmean(run[name] for run in runs) for name in runs[0]}
    ratios = {
        "time_ratio": figures["buffered_s"] / figures["synchronous_s"],
        "over_selected_time_ratio": figures["over_selected_s"] / figures["synchronous_s"],
        "bytes_ratio": figures["buffered_mb"] / figures["synchronous_mb"],
        "over_selected_bytes_ratio": figures["over_selected_mb"] / figures["synchronous_mb"],
    }
    return ratios | figures


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="one seed, half the clients, 8 rounds")
    parser.add_argument("--preset", default="keyboard-tiny", help="preset of the simulations")
    parser.add_argument("--data", type=Path, help="folder of the preset's data, if it has any")
    parser.add_argument(
        "--clients", type=int, help="clients the data is dealt to (default: 60, quick 30)"
    )
    parser.add_argument(
        "--as-dealt", action="store_true", help="leave the number of clients to the data"
    )
    parser.add_argument("--cohort", type=int, help="updates in a release (default: 10, quick 5)")
    parser.add_argument(
        "--concurrency", type=int, help="devices at work at a time, buffered (default: 2 cohorts)"
    )
    parser.add_argument("--rounds", type=int, help="synchronous rounds (default: 30, quick 8)")
    parser.add_argument(
        "--slowest", type=float, default=20.0, help="slowest over fastest (default: 20)"
    )
    parser.add_argument("--max-staleness", type=int, default=10, help="in releases (default: 10)")
    parser.add_argument(
        "--staleness-exponent", type=float, default=0.5, help="0 counts all alike (default: 0.5)"
    )
    parser.add_argument("--seeds", type=int, help="seeds, from 1 on (default: 3, quick 1)")
    arguments = parser.parse_args()
    quick = arguments.quick
    cohort = arguments.cohort or (5 if quick else 10)
    setting = Setting(
        preset=arguments.preset,
        data=arguments.data,
        clients=None if arguments.as_dealt else arguments.clients or (30 if quick else 60),
        cohort=cohort,
        concurrency=arguments.concurrency or 2 * cohort,
        rounds=arguments.rounds or (8 if quick else 30),
        slowest=arguments.slowest,
        max_staleness=arguments.max_staleness,
        exponent=arguments.staleness_exponent,
    )
    seeds = range(1, 1 + (arguments.seeds or (1 if quick else 3)))
    figures = measure(setting, seeds)
    show_figures(
        figures, f"Devices 1 to {setting.slowest:g}, {setting.preset}", as_json=arguments.json
    )


if __name__ == "__main__":
    main()
