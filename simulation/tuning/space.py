"""Say over what a search goes: a range or a list for each number it may choose.

``noise_multiplier=0.5..4`` is a range, logarithmic if its ends lie a factor of ten apart or more;
``attention_strength=0,0.25,0.5`` is a list; ``clipping_norm=1`` is fixed.
"""

import math
import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from simulation.tuning.candidate import MODES, Candidate, Kind, Mode, NoiseOn, Rule

RULES: tuple[Rule, ...] = ("mean", "attentive")
_LOGARITHMIC_FROM = 10.0
DIMENSIONS = (
    "noise_multiplier",
    "clipping_norm",
    "attention_strength",
    "cohort",
    "server_step_size",
)
"""Settings that a search can vary."""


class Range(NamedTuple):
    """Two ends, both possible, the upper above the lower."""

    low: float
    high: float

    @property
    def is_logarithmic(self) -> bool:
        """Whether equal ratios are equally likely, and not equal differences."""
        return self.low > 0 and self.high / self.low >= _LOGARITHMIC_FROM


class Choices(NamedTuple):
    """Single values, at least one."""

    values: tuple[float, ...]


Dimension = Range | Choices


class Space(NamedTuple):
    """Everything a search may choose; ``dimensions`` has every one of ``DIMENSIONS``.

    ``noise_on`` is the same for all candidates: what the coordinator noises.
    """

    modes: tuple[Mode, ...]
    rules: tuple[Rule, ...]
    dimensions: Mapping[str, Dimension]
    noise_on: NoiseOn = "mean"

    @property
    def kinds(self) -> list[Kind]:
        """Every noise mode with every rule."""
        return [(mode, rule) for mode in self.modes for rule in self.rules]


def parse_dimension(text: str) -> tuple[str, Dimension]:
    """Read ``name=low..high`` or ``name=value,value``.

    Raises:
        ValueError: If it reads otherwise, names no dimension, or the ends are the wrong way round.
    """
    name, _, rest = text.partition("=")
    if name not in DIMENSIONS:
        raise ValueError(f"--search takes one of {', '.join(DIMENSIONS)}, got {name!r}")
    low, dots, high = rest.partition("..")
    try:
        if dots:
            ends = Range(float(low), float(high))
            if not -math.inf < ends.low < ends.high < math.inf:
                raise ValueError
            return name, ends
        return name, Choices(tuple(float(value) for value in rest.split(",")))
    except ValueError:
        raise ValueError(
            f"--search must read like {name}=0.5..4 (the lower end first) or {name}=1,2, got {text}"
        ) from None


def make_space(
    modes: Iterable[str],
    rules: Iterable[str],
    searched: Mapping[str, Dimension],
    *,
    clipping_norm: float,
    cohort: int,
    noise_on: NoiseOn = "mean",
) -> Space:
    """Return the space with a usual dimension for each that was not searched.

    The usual clipping norm goes from a tenth of the preset's up to it; the cohort is the preset's.

    Raises:
        ValueError: If there is no such mode or rule.
    """
    usual: dict[str, Dimension] = {
        "noise_multiplier": Range(0.4, 4.0),
        "clipping_norm": Range(clipping_norm / 10, clipping_norm),
        "attention_strength": Choices((0.1, 0.25, 0.5)),
        "cohort": Choices((cohort,)),
        "server_step_size": Choices((0.5, 1.0)),
    }
    return Space(
        tuple(mode for mode in MODES if mode in _known(modes, MODES, "mode")),
        tuple(rule for rule in RULES if rule in _known(rules, RULES, "rule")),
        {**usual, **searched},
        noise_on,
    )


def candidate_from(values: Mapping[str, Any], noise_on: NoiseOn = "mean") -> Candidate:
    """Return the candidate that a search's values mean; ``mean`` has no attention strength."""
    attention = 0.0 if values["rule"] == "mean" else float(values["attention_strength"])
    return Candidate(
        mode=values["mode"],
        rule=values["rule"],
        noise_multiplier=float(values["noise_multiplier"]),
        clipping_norm=float(values["clipping_norm"]),
        attention_strength=attention,
        cohort=round(values["cohort"]),
        server_step_size=float(values["server_step_size"]),
        noise_on=noise_on,
    )


def draw(space: Space, source: random.Random) -> Candidate:
    """Return a candidate drawn at random, every dimension by itself."""
    values: dict[str, Any] = {
        "mode": source.choice(space.modes),
        "rule": source.choice(space.rules),
    }
    for name, dimension in space.dimensions.items():
        values[name] = _draw(dimension, source)
    return candidate_from(values, space.noise_on)


def _draw(dimension: Dimension, source: random.Random) -> float:
    match dimension:
        case Choices(values):
            return source.choice(values)
        case Range(low, high) if dimension.is_logarithmic:
            return math.exp(source.uniform(math.log(low), math.log(high)))
        case Range(low, high):
            return source.uniform(low, high)


def _known(names: Iterable[str], allowed: Iterable[str], what: str) -> set[str]:
    chosen, known = set(names), set(allowed)
    if not chosen or not chosen <= known:
        raise ValueError(f"{what} must be of {', '.join(sorted(known))}, got {sorted(chosen)}")
    return chosen
