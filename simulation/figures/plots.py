"""Draw what people would rather look at than read: PNG files, no display needed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.pages.curves import axis_scale
from simulation.figures.metrics import Figures, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = (7.0, 4.2)
_DOTS_PER_INCH = 130


def plot_runs(
    runs: Mapping[str, Sequence[Figures]],
    path: Path,
    *,
    figure: str = "valid_perplexity",
    levels: Mapping[str, float] | None = None,
) -> None:
    """Draw one figure by round, one line a run, and write it as PNG.

    ``levels`` are horizontal lines to compare with, such as a bigram's perplexity, by name.

    Raises:
        ValueError: If no run has the figure.
    """
    lines = {name: series(rows, figure) for name, rows in runs.items()}
    if not any(rounds for rounds, _ in lines.values()):
        if any(figure in row for rows in runs.values() for row in rows):
            raise ValueError(
                f"{figure} is a finite number in no round, as where a model diverged; "
                "lower training.learning_rate, or choose another figure"
            )
        raise ValueError(f"no run has the figure {figure}; choose one of {_names(runs)}")

    def draw(axes: "Axes") -> None:
        for name, (rounds, values) in lines.items():
            axes.plot(rounds, values, marker=".", label=name)
        _draw_levels(axes, levels or {})
        axes.set_xlabel("round")

    _write(path, draw, figure)


def plot_table(
    columns: Mapping[str, Sequence[tuple[float, float, float]]],
    path: Path,
    *,
    setting: str,
    figure: str,
    levels: Mapping[str, float] | None = None,
) -> None:
    """Draw a figure against a setting, with its spread over seeds, and write it as PNG.

    ``columns`` has points ``(setting, mean, spread)`` by line, ``levels`` horizontal lines.
    """

    def draw(axes: "Axes") -> None:
        for name, points in columns.items():
            settings, means, spreads = zip(*sorted(points), strict=True)
            axes.errorbar(settings, means, yerr=spreads, marker="o", capsize=3, label=name)
        _draw_levels(axes, levels or {})
        axes.set_xscale(axis_scale([point[0] for points in columns.values() for point in points]))
        axes.set_xlabel(setting)

    _write(path, draw, figure)


def plot_bars(
    bars: Mapping[str, tuple[float, float]],
    path: Path,
    *,
    figure: str,
    levels: Mapping[str, float] | None = None,
) -> None:
    """Draw one bar a name, from ``(mean, spread)``, and horizontal ``levels``; write it as PNG."""

    def draw(axes: "Axes") -> None:
        means = [mean for mean, _ in bars.values()]
        spreads = [spread for _, spread in bars.values()]
        axes.bar(list(bars), means, yerr=spreads, capsize=3, color="tab:blue")
        axes.tick_params(axis="x", labelrotation=30)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
        _draw_levels(axes, levels or {})

    _write(path, draw, figure)


def _draw_levels(axes: "Axes", levels: Mapping[str, float]) -> None:
    for index, (name, level) in enumerate(levels.items()):
        axes.axhline(level, linestyle="--", linewidth=1, color=f"C{(index + 3) % 10}", label=name)


def write_figure(path: Path, draw: Callable[..., None], *, panels: int = 1) -> None:
    """Draw panels side by side and write them as PNG; ``draw`` takes one axes a panel."""
    # The object interface: no global state, no display, and nothing to close.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = _INCHES
    canvas = FigureCanvasAgg(Figure(figsize=(width * panels, height), layout="constrained"))
    every = [canvas.figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    draw(*every)
    for axes in every:
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.figure.savefig(path, dpi=_DOTS_PER_INCH, format="png")


def _write(path: Path, draw: Callable[["Axes"], None], figure: str) -> None:
    def labelled(axes: "Axes") -> None:
        draw(axes)
        axes.set_ylabel(figure.replace("_", " "))

    write_figure(path, labelled)


def _names(runs: Mapping[str, Sequence[Figures]]) -> list[str]:
    return sorted({name for rows in runs.values() for row in rows for name in row})
