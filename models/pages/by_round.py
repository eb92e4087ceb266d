"""All figures of one run or several, round by round: a picture each, in groups that people ask for.

What is the same in every round of every run has no picture: it is told in a line.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from models.pages.curves import (
    Line,
    colour_of,
    figure_in_words,
    is_thinned,
    picture,
    points_of,
    titled,
)
from models.pages.document import Html, element
from models.tasks.figures import quality_of

_NO_FIGURES = {"round", "attempt", "delta"}
_OF_DEVICES = (
    *("attackers", "clients", "clipped", "cohort", "contributions", "diverged"),
    *("refused_", "screened_"),
)
_OF_WORK = ("bytes", "tokens")
_MEANS = (
    "There are more rounds than a picture has room for: a line is the mean of some rounds, and the "
    "faint band goes from their least to their largest value."
)
_GROUPS: Mapping[str, Callable[[str], bool]] = {
    "The model": lambda name: quality_of(name) is not None or name.endswith("loss"),
    "Participation": lambda name: name.startswith(_OF_DEVICES),
    "Privacy": lambda name: name.endswith("epsilon"),
    "Bytes and work": lambda name: name.startswith(_OF_WORK) or name.endswith("_bytes"),
    "Time": lambda name: name.endswith("_s"),
    "Other figures": lambda _: True,
}


class Course(NamedTuple):
    """The figures of one run by round, oldest first; runs of one ``colour`` belong together."""

    name: str
    colour: int
    rounds: Sequence[tuple[int, Mapping[str, object]]]


def sections(courses: Sequence[Course]) -> list[Html]:
    """Return a section for each group that has a figure."""
    drawn: dict[str, list[Html]] = {}
    constant: list[str] = []
    has_means = False
    for name in _names(courses):
        lines = [
            Line(course.name, course.colour, points)
            for course in courses
            if (points := points_of(course.rounds, name))
        ]
        values = {value for line in lines for _, value in line.points}
        if len(values) == 1 and math.isfinite(next(iter(values))):
            constant.append(f"{titled(name)} {figure_in_words(values.pop())}")
        elif lines:
            drawn.setdefault(_group_of(name), []).append(picture(name, lines))
            has_means = has_means or is_thinned(lines)
    found = [part for group in _GROUPS if group in drawn for part in _section(group, drawn[group])]
    if has_means:
        found.append(element("p", element("small", _MEANS)))
    if constant:
        found.append(element("p", element("small", _same_told(constant))))
    return found


def legend(names: Mapping[int, str]) -> Html:
    """Return the colours of courses with what each stands for."""
    keys = [
        Html(f'<span class="key" style="background:{colour_of(colour)}"></span>')
        for colour in names
    ]
    told = zip(keys, names.values(), strict=True)
    return element("p", *(element("span", key, f" {name}", kind="named") for key, name in told))


def _section(group: str, pictures: Sequence[Html]) -> Iterator[Html]:
    yield element("h3", group)
    yield element("div", *pictures, kind="curves")


def _same_told(constant: Sequence[str]) -> str:
    return f"The same in every round: {', '.join(constant)}."


def _names(courses: Sequence[Course]) -> list[str]:
    """Return every figure that is a number somewhere, those of the model's quality first."""
    names = {
        name
        for course in courses
        for _, figures in course.rounds
        for name, value in figures.items()
        if not isinstance(value, str)
    }
    return sorted(names - _NO_FIGURES)


def _group_of(name: str) -> str:
    return next(group for group, holds in _GROUPS.items() if holds(name))
