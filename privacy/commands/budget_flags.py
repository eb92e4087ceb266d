"""Settings of ``sotto-privacy epsilon``, ``noise``, ``sensitivity`` and ``explain``.

No flag that decides privacy has a default, and a flag that would have no effect is refused.
"""

from pathlib import Path
from typing import Annotated, Literal

from privacy.clipping.sensitivity import Adjacency
from privacy.foundation.flags import Flag, Printed

Mode = Literal["ftrl", "central", "masked"]
Source = Mode | Literal["ledger", "plan"]

_RUN = frozenset({"mode", "rounds", "delta"})
_TREES = _RUN | {"min_separation", "max_participation", "restart_rounds", "mechanism"}
_ALLOWED: dict[Source, frozenset[str]] = {
    "ledger": frozenset({"ledger", "plan", "delta", "run", "head"}),
    "plan": frozenset({"plan"}),
    "ftrl": _TREES | {"noise_multiplier"},
    "central": _RUN | {"noise_multiplier", "sampling_rate", "population"},
    "masked": _RUN | {"noise_multiplier"},
}
_IN_WORDS: dict[Source, str] = {
    "ledger": "a ledger, which says itself what was released",
    "plan": "a plan, which says so itself",
    "ftrl": "correlated noise, which assumes nothing about who takes part when",
    "central": "cohorts drawn by coins",
    "masked": "sums under masks, whose contributors the coordinator knows",
}
_OTHERS = frozenset({"json", "second_opinion"})


class BudgetRun(Printed, frozen=True, kw_only=True):
    """Rounds of one run, as far as its privacy depends on them.

    Attributes:
        mode: Noise mode (default: central).
        rounds: Rounds of the whole run.
        sampling_rate: Chance of one person in one round, in (0, 1]; 1 where devices choose
            themselves.
        delta: Chance that the bound fails, over the whole run.
        min_separation: Ftrl: least distance of two rounds of one person, in rounds; 1 is every
            round.
        max_participation: Ftrl: most rounds of one person.
        restart_rounds: Ftrl with trees: rounds of one tree (default: all).
        mechanism: Ftrl: tree, or blt, buffers chosen for these rounds and limits (default: tree, as
            in a file that names none).
    """

    mode: Mode | None = None
    rounds: Annotated[int | None, Flag("T")] = None
    sampling_rate: Annotated[float | None, Flag("Q")] = None
    delta: Annotated[float | None, Flag("D")] = None
    min_separation: Annotated[int | None, Flag("ROUNDS")] = None
    max_participation: Annotated[int | None, Flag("ROUNDS")] = None
    restart_rounds: Annotated[int | None, Flag("ROUNDS")] = None
    mechanism: Literal["tree", "blt"] | None = None

    def _check_effect(self, source: Source, allowed: frozenset[str]) -> None:
        given = {name for name in self.__struct_fields__ if getattr(self, name) is not None}
        for name in sorted(given - _OTHERS - allowed):
            flag = "PLAN" if name == "plan" else "--" + name.replace("_", "-")
            raise ValueError(f"{flag} has no effect for {_IN_WORDS[source]}")
        if self.mechanism == "blt" and self.restart_rounds is not None:
            raise ValueError("--restart-rounds has no effect for buffers, only for trees")


class Epsilon(BudgetRun, frozen=True, kw_only=True):
    """A federation's file, a ledger, or a setting given by flags.

    Attributes:
        plan: Federation TOML file.
        noise_multiplier: Noise standard deviation over L2 sensitivity; no unit.
        population: Enrolled people; with it places are fixed, and their tail is part of delta.
        ledger: A federation's folder, its SQLite store, or what `sotto-server ledger --json`
            printed; its chain is checked.
        run: Run the ledger must be of, 32 hex digits.
        head: Digest its newest entry must have, 64 hex digits.
        second_opinion: Second accountant (default and only sound one: prv).
    """

    plan: Annotated[Path | None, Flag("PLAN", positional=True)] = None
    noise_multiplier: Annotated[float | None, Flag("Z")] = None
    population: Annotated[int | None, Flag("N")] = None
    ledger: Annotated[Path | None, Flag("PATH")] = None
    run: Annotated[str | None, Flag("HEX")] = None
    head: Annotated[str | None, Flag("HEX")] = None
    second_opinion: Annotated[str, Flag("NAME")] = "prv"

    def __post_init__(self) -> None:
        """Refuse a flag that does not belong to the source."""
        self._check_effect(self.source, _ALLOWED[self.source])

    @property
    def source(self) -> Source:
        """Return what is asked about."""
        if self.ledger is not None:
            return "ledger"
        return "plan" if self.plan is not None else self.mode or "central"


class Noise(BudgetRun, frozen=True, kw_only=True):
    """A run and the privacy budget that it must keep.

    Attributes:
        target_epsilon: Epsilon of the whole run.
    """

    target_epsilon: Annotated[float | None, Flag("E")] = None

    def __post_init__(self) -> None:
        """Refuse a flag that does not belong to the mode."""
        mode = self.mode or "central"
        self._check_effect(mode, _ALLOWED[mode] | {"target_epsilon"})


class Sensitivity(Printed, frozen=True, kw_only=True):
    """One step of the attentive aggregate.

    Attributes:
        cohort: Places of a round.
        attention_strength: Largest ratio of two weights is e^K; 0 is equal weights; no unit.
        clipping_norm: Largest L2 norm of an update over all layers, in parameter units.
        adjacency: Neighbouring relation.
        layers: Layers weighed apart under the one clip.
        server_step_size: Multiplies the aggregate; no unit.
        noise_on: What the coordinator noises: the mean over all places, or the sums of updates and
            of weights, which are divided afterwards.
    """

    cohort: Annotated[int, Flag("M")]
    attention_strength: Annotated[float, Flag("K")]
    clipping_norm: Annotated[float, Flag("C")]
    adjacency: Adjacency = "zero-out"
    layers: Annotated[int, Flag("L")] = 1
    server_step_size: Annotated[float, Flag("STEP")] = 1.0
    noise_on: Literal["mean", "sums"] = "mean"


class Explain(Printed, frozen=True, kw_only=True):
    """A plan.

    Attributes:
        plan: Federation TOML file.
    """

    plan: Annotated[Path, Flag("PLAN", positional=True)]
