"""A figure over rounds as a picture: one line a run, in SVG, without a library.

A picture has a bounded number of points, however long the run: of many rounds it shows the mean of
each part, with its least and its largest value behind, so the best one and the last one are never
lost. A value that is not finite is a gap, and is told.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from models.pages.document import Html, element
from models.tasks.figures import quality_of

Point = tuple[int, float]

COLOURS = 8
STYLE = """
:root { --c0: #0b66c3; --c1: #c24d00; --c2: #00805c; --c3: #a33a93; --c4: #8a6d00; --c5: #c0264b;
  --c6: #4d5bd0; --c7: #5c6670; }
@media (prefers-color-scheme: dark) { :root { --c0: #62aef7; --c1: #ff9a5c; --c2: #3fcf9f;
  --c3: #e58ad5; --c4: #e0be45; --c5: #ff7f9c; --c6: #a3acff; --c7: #b4bec8; } }
.curves { display: grid; gap: 1.2rem; }
.curves { grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); }
figure { margin: 0; min-width: 0; }
figure { display: flex; flex-direction: column; justify-content: space-between; }
figcaption small { display: block; }
svg { width: 100%; height: auto; overflow: visible; }
svg text { font-size: 11px; fill: currentColor; opacity: .8; }
svg path { fill: none; stroke-width: 1.6; stroke-linecap: round; stroke-linejoin: round; }
svg .grid { stroke: currentColor; opacity: .18; stroke-width: 1; }
svg .span { opacity: .35; stroke-width: 1; }
svg circle { stroke: none; }
.named { display: inline-block; margin-right: 1.5rem; }
.key { display: inline-block; width: 1.6rem; height: .5rem; vertical-align: middle; }
"""
_WIDTH, _HEIGHT = 360, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 352, 8, 168
_MOST_POINTS = 1200
_LEAST_POINTS = 40
_MOST_MEANS = 120
_FAR_APART = 20
"""Ratio of the largest to the least value from which an axis is logarithmic."""

_TOO_LARGE = 1e300
"""From here on a value is as good as infinite: a difference of two could be."""


class Line(NamedTuple):
    """The values of one run by round, with NaN where one is not finite; ``colour`` from 0."""

    name: str
    colour: int
    points: Sequence[Point]


def colour_of(number: int) -> str:
    """Return the style's colour of a line's number; from the ninth on they come again."""
    return f"var(--c{number % COLOURS})"


def points_of(rounds: Iterable[tuple[int, Mapping[str, object]]], figure: str) -> list[Point]:
    """Return a figure by round, in order, NaN where a round says that it was not finite.

    JSON has no infinity and no NaN: files have null for both. A round that does not name the figure
    was not measured, which is no gap.
    """
    found = ((number, figures[figure]) for number, figures in rounds if figure in figures)
    return [(number, _number(value)) for number, value in found if not isinstance(value, str)]


def axis_scale(values: Sequence[float]) -> Literal["linear", "log"]:
    """Return the scale on which values are told apart: by ratio (``log``) if far apart."""
    least, largest = min(values), max(values)
    return "log" if least > 0 and largest / least >= _FAR_APART else "linear"


def is_thinned(lines: Sequence[Line]) -> bool:
    """Return whether a picture of these shows means, the values between being too many."""
    return any(len(line.points) > _most_points(lines) for line in lines)


def picture(figure: str, lines: Sequence[Line]) -> Html:
    """Return a figure's picture with a caption that says its last and its best value."""
    known = [point for line in lines for point in line.points if math.isfinite(point[1])]
    told = [_told(figure, lines), _gaps_told(lines)]
    caption = element("b", titled(figure))
    notes = [element("small", note) for note in told if note]
    drawn = _drawn(figure, lines, known) if known else Html("")
    return element("figure", element("figcaption", caption, *notes), drawn)


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return about ``most`` points: of each part the least, the largest, and its first gap.

    The first, the last, the least and the largest of all points stay.
    """
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / max(1, most // 2))
    kept = {0, len(points) - 1}
    for start in range(0, len(points), size):
        part = range(start, min(start + size, len(points)))
        finite = [place for place in part if math.isfinite(points[place][1])]
        if finite:
            kept |= {min(finite, key=lambda at: points[at][1])}
            kept |= {max(finite, key=lambda at: points[at][1])}
        kept |= set([place for place in part if math.isnan(points[place][1])][:1])
    return [points[place] for place in sorted(kept)]


def averaged(points: Sequence[Point]) -> list[Point]:
    """Return the mean of each part of many points, at its middle round; NaN if none is finite."""
    count = min(_MOST_MEANS, len(points))
    ends = [len(points) * number // count for number in range(count + 1)]
    parts = [points[start:end] for start, end in pairwise(ends)]
    known = [(part, [v for _, v in part if math.isfinite(v)]) for part in parts]
    return [
        (part[len(part) // 2][0], sum(values) / len(values) if values else math.nan)
        for part, values in known
    ]


def titled(figure: str) -> str:
    """Return a figure's name as people read it, with its unit."""
    name, _, unit = figure.rpartition("_")
    return f"{name}, seconds".replace("_", " ") if unit == "s" else figure.replace("_", " ")


def figure_in_words(value: float) -> str:
    """Return a finite value in four digits, or all of its whole ones."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def best_of(figure: str, points: Iterable[Point]) -> Point | None:
    """Return the best finite point; None without one, or where neither more nor less is better."""
    quality = quality_of(figure)
    finite = [point for point in points if math.isfinite(point[1])]
    if quality is None or not finite:
        return None
    return (max if quality.more_is_better else min)(finite, key=lambda point: point[1])


def _number(value: object) -> float:
    is_number = isinstance(value, int | float) and abs(value) < _TOO_LARGE
    return float(value) if isinstance(value, int | float) and is_number else math.nan


def _told(figure: str, lines: Sequence[Line]) -> str:
    bests = [(best, line) for line in lines if (best := best_of(figure, line.points)) is not None]
    words = []
    if len(lines) == 1 and lines[0].points:
        number, value = lines[0].points[-1]
        last = figure_in_words(value) if math.isfinite(value) else "not finite"
        words.append(f"{last} in round {number}")
    if bests:
        quality = quality_of(figure)
        rises = quality is not None and quality.more_is_better
        (number, value), line = (max if rises else min)(bests, key=lambda one: one[0][1])
        whose = f", {line.name}" if len(lines) > 1 else ""
        words.append(f"best {figure_in_words(value)} in round {number}{whose}")
    return "; ".join(words)


def _gaps_told(lines: Sequence[Line]) -> str:
    lost = sum(math.isnan(value) for line in lines for _, value in line.points)
    total = sum(len(line.points) for line in lines)
    if not lost:
        return ""
    if lost == total:
        return f"not finite in any of {total} values, as where a model diverged: nothing to draw"
    return f"{lost} of {total} values are not finite, as where a model diverged: gaps in the line"


class _Axes(NamedTuple):
    """The first and last round of a picture, and the ends of its values, or of their logs."""

    first: int
    last: int
    low: float
    high: float
    is_log: bool

    def x(self, number: int) -> float:
        share = (number - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return _LEFT + share * (_RIGHT - _LEFT)

    def y(self, value: float) -> float:
        height = math.log10(value) if self.is_log else value
        share = (height - self.low) / (self.high - self.low)
        return _BOTTOM - share * (_BOTTOM - _TOP)


def _axes(figure: str, known: Sequence[Point]) -> _Axes:
    quality = quality_of(figure)
    numbers, values = zip(*known, strict=True)
    # Shares are told apart by their difference.
    is_log = axis_scale(values) == "log" and not (quality is not None and quality.is_share)
    ends = [math.log10(end) if is_log else end for end in (min(values), max(values))]
    room = (ends[1] - ends[0]) * 0.04 or abs(ends[0]) * 0.05 or 1.0
    return _Axes(min(numbers), max(numbers), ends[0] - room, ends[1] + room, is_log)


def _drawn(figure: str, lines: Sequence[Line], known: Sequence[Point]) -> Html:
    axes = _axes(figure, known)
    most, parts = _most_points(lines), [*_grid(axes)]
    for line in lines:
        points, best = thinned(line.points, most), best_of(figure, line.points)
        if len(points) < len(line.points):
            parts.append(_path(axes, points, line.colour, kind="span"))
            points = averaged(line.points)
        parts.append(_path(axes, points, line.colour))
        finite = [point for point in line.points if math.isfinite(point[1])]
        for number, value in dict.fromkeys([*finite[-1:], *([best] if best else [])]):
            where = f'cx="{axes.x(number):.1f}" cy="{axes.y(value):.1f}" r="2.6"'
            told = f"{line.name} {figure_in_words(value)} in round {number}"
            title = f"<title>{escape(told.strip())}</title>"
            parts.append(f'<circle {where} fill="{colour_of(line.colour)}">{title}</circle>')
    label = escape(f"{titled(figure)} by round. {_told(figure, lines)}", quote=True)
    view = f'viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return Html(f'<svg role="img" aria-label="{label}" {view}>{"".join(parts)}</svg>')


def _most_points(lines: Sequence[Line]) -> int:
    return max(_LEAST_POINTS, _MOST_POINTS // len(lines))


def _path(axes: _Axes, points: Sequence[Point], colour: int, *, kind: str = "line") -> str:
    steps = []
    for is_gap, run in groupby(points, key=lambda point: math.isnan(point[1])):
        if is_gap:
            continue
        places = [f"{axes.x(number):.1f} {axes.y(value):.1f}" for number, value in run]
        # A value between two gaps is a dot: a line of no length, with round ends.
        steps.append("M" + "L".join(places if len(places) > 1 else places * 2))
    dashes = "" if colour < COLOURS else f' stroke-dasharray="{2 + 3 * (colour // COLOURS)} 3"'
    return f'<path class="{kind}" d="{"".join(steps)}" stroke="{colour_of(colour)}"{dashes}/>'


def _grid(axes: _Axes) -> Iterable[str]:
    for value in _ticks(axes):
        y = axes.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>'
        yield f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
    for number, anchor in ((axes.first, "start"), (axes.last, "end")):
        if number == axes.first or axes.last > axes.first:
            x = axes.x(number)
            where = f'x="{x:.1f}" y="{_BOTTOM + 16}" text-anchor="{anchor}"'
            yield f"<text {where}>{'round ' if number == axes.first else ''}{number:,}</text>"


def _ticks(axes: _Axes) -> list[float]:
    """Return two to seven round values between the ends."""
    if axes.is_log:
        powers = range(max(-307, math.floor(axes.low)), min(307, math.ceil(axes.high)) + 1)
        bases = (1, 2, 5) if axes.high - axes.low < 3 else (1,)
        steps = [base * 10.0**power for power in powers for base in bases]
        inside = [step for step in steps if axes.low <= math.log10(step) <= axes.high]
        return inside[:: math.ceil(len(inside) / 6)]
    span = axes.high - axes.low
    size = 10.0 ** math.floor(math.log10(span / 3))
    step = next(size * base for base in (1, 2, 5, 10) if span / (size * base) <= 6)
    first, last = math.ceil(axes.low / step), math.floor(axes.high / step)
    return [number * step for number in range(first, last + 1)]


def _short(value: float) -> str:
    """Return a tick's value in few letters: 12k, 3M, 0.05."""
    if abs(value) >= 1e12:
        return f"{value:.0e}".replace("e+", "e")
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"
