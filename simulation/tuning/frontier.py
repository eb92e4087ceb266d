"""Make of measurements what people read: a table, the frontier, and the settings to deploy."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from privacy.foundation.atomic_files import READABLE, write_atomically
from simulation.figures.plots import write_figure
from simulation.tuning.candidate import Deployment
from simulation.tuning.measuring import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LONG = 1e6
_DRAWN = 10.0
"""Perplexities up to so many times the best are drawn; the table has all of them."""


class NothingWithinBudgetError(ValueError):
    """Raised when no measured setting stays within the target epsilon."""


def frontier(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return those that no other beats in both epsilon and perplexity, by epsilon."""
    noisy = [one for one in measurements if one.epsilon is not None]
    ordered = sorted(noisy, key=lambda one: (one.epsilon or 0.0, one.perplexity))
    best: list[Measurement] = []
    for one in ordered:
        if not best or one.perplexity < best[-1].perplexity:
            best.append(one)
    return best


def recommended(measurements: Sequence[Measurement], target_epsilon: float) -> Measurement:
    """Return the best model within a target epsilon.

    Raises:
        NothingWithinBudgetError: If there is none; names the smallest epsilon measured.
    """
    within = [one for one in frontier(measurements) if (one.epsilon or 0.0) <= target_epsilon]
    if not within:
        spent = [one.epsilon for one in measurements if one.epsilon is not None]
        raise NothingWithinBudgetError(
            f"no setting measured stays within epsilon {target_epsilon:g}; the smallest is "
            f"{min(spent, default=float('nan')):.3g}: search a larger noise_multiplier, fewer "
            "rounds, or a smaller part of a larger population"
        )
    return within[-1]


def markdown(measurements: Sequence[Measurement], deployment: Deployment, *, note: str) -> str:
    """Return the table: runs without noise first, then by epsilon."""
    best = {id(one) for one in frontier(measurements)}
    head = (
        "| mode | rule | ε, readers | ε, coordinator | z | C | κ | cohort | step | noise std "
        "| perplexity | top-3 recall | |"
    )
    lines = [
        f"Deployment: {deployment.population_size} enrolled people, {deployment.rounds} rounds, "
        f"δ = {deployment.delta:g}. {note}".rstrip(),
        "",
        head,
        "| --- " * 13 + "|",
    ]
    for one in sorted(measurements, key=lambda one: one.epsilon or 0.0):
        lines.append(_line(one, on_frontier=id(one) in best))
    return "\n".join(lines) + "\n"


def draw(measurements: Sequence[Measurement], path: Path, *, title: str) -> None:
    """Draw perplexity and top-3 recall against epsilon, one line a mode and rule, as PNG.

    Settings far above the best perplexity, or lost with every seed, are not drawn.
    """
    known = [one for one in measurements if math.isfinite(one.perplexity)]
    kinds = sorted({(one.name, one.rule) for one in known if one.epsilon is not None})

    def panel(axes: "Axes", figure: str) -> None:
        for name, rule in kinds:
            of_kind = [one for one in known if (one.name, one.rule) == (name, rule)]
            _scatter(axes, of_kind, figure, label=f"{name}, {rule}")
        for index, one in enumerate(one for one in known if one.epsilon is None):
            level = getattr(one, figure)
            style, colour = ("--", ":")[index % 2], f"C{(index + 7) % 10}"
            axes.axhline(level, linestyle=style, color=colour, label=f"no noise, {one.rule}")
        axes.set_xscale("log")
        axes.set_xlabel("epsilon of the whole run")
        axes.set_ylabel({"perplexity": "validation perplexity", "recall": "top-3 recall"}[figure])

    def both(left: "Axes", right: "Axes") -> None:
        panel(left, "perplexity")
        left.set_yscale("log")
        left.set_ylim(top=_highest(known))
        left.set_title(title, loc="left", fontsize=9)
        panel(right, "recall")

    write_figure(path, both, panels=2)


def _highest(measurements: Sequence[Measurement]) -> float:
    """Return the highest perplexity that is drawn; noise can drive one to 1e15 and beyond."""
    highest = max(one.perplexity for one in measurements)
    return min(1.1 * highest, _DRAWN * min(one.perplexity for one in measurements))


def write(
    measurements: Sequence[Measurement], out: Path, deployment: Deployment, note: str
) -> None:
    """Write ``tune.json``, ``tune.md`` and ``frontier.png``."""
    # A search over few values draws some of them twice, and then finds the run there.
    measurements = list(dict.fromkeys(measurements))
    out.mkdir(parents=True, exist_ok=True)
    document = {"deployment": deployment, "note": note, "measurements": measurements}
    encoded = msgspec.json.format(msgspec.json.encode(document))
    write_atomically(out / "tune.json", encoded, mode=READABLE)
    text = markdown(measurements, deployment, note=note)
    write_atomically(out / "tune.md", text.encode(), mode=READABLE)
    if any(one.epsilon is not None for one in measurements):
        people = f"N = {deployment.population_size:,}, T = {deployment.rounds}"
        draw(measurements, out / "frontier.png", title=f"{people}, δ = {deployment.delta:g}")


def _scatter(axes: "Axes", points: Sequence[Measurement], figure: str, *, label: str) -> None:
    """Draw every point, and a line through those that are on their own frontier."""
    line = frontier(points)
    drawn = axes.errorbar(
        [one.epsilon or 0.0 for one in line],
        [getattr(one, figure) for one in line],
        yerr=[getattr(one, f"{figure}_spread") for one in line],
        marker="o",
        capsize=3,
        label=label,
    )
    colour = drawn.lines[0].get_color()
    rest = [one for one in points if one not in line]
    axes.scatter(
        [one.epsilon or 0.0 for one in rest],
        [getattr(one, figure) for one in rest],
        s=12,
        alpha=0.4,
        color=colour,
    )


def _short(perplexity: float) -> str:
    """Return a perplexity in few digits, however large."""
    return f"{perplexity:.1f}" if perplexity < _LONG else f"{perplexity:.1e}"


def _perplexity(one: Measurement) -> str:
    """Return the perplexity over the seeds that are not lost, and how many are."""
    if not math.isfinite(one.perplexity):
        return "lost"
    lost = f", {len(one.lost)} of {len(one.seeds) + len(one.lost)} lost" if one.lost else ""
    return f"{_short(one.perplexity)} ± {_short(one.perplexity_spread)}{lost}"


def _line(one: Measurement, *, on_frontier: bool) -> str:
    cells = [one.name, one.rule]
    if one.candidate is None:
        cells += ["∞", "∞", "", "", "", "", "", "0"]
    else:
        candidate = one.candidate
        cells += [
            f"{one.epsilon:.3g}",
            "∞" if one.coordinator_epsilon is None else f"{one.coordinator_epsilon:.3g}",
            f"{candidate.noise_multiplier:.3g}",
            f"{candidate.clipping_norm:.3g}",
            f"{candidate.attention_strength:g}",
            str(candidate.cohort),
            f"{candidate.server_step_size:g}",
            f"{one.noise_std:.2g}",
        ]
    cells += [
        _perplexity(one),
        f"{one.recall:.2%} ± {one.recall_spread:.2%}",
        "frontier" if on_frontier else "",
    ]
    return "| " + " | ".join(cells) + " |"
