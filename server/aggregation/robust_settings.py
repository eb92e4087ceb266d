"""Settings of the rules that some bad clients cannot drag along; ``rule`` in TOML picks one.

Each says how many bad updates do no lasting harm (``tolerated``) and how few updates it works with
(``least_cohort``). None has a proved sensitivity, so none goes with a noise mode that needs one.
Example counts play no part: a client could claim as many as it likes. An empty place takes no part.

References:
    [Krum] Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient
        Descent", NeurIPS 2017.
    [Median] Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
        Rates", ICML 2018, arXiv:1803.01498.
    [RFA] Pillutla, Kakade and Harchaoui, "Robust Aggregation for Federated Learning", IEEE
        Transactions on Signal Processing 2022, arXiv:1912.13445.
    [FLTrust], [FoolsGold] As in ``server.aggregation.robust.trims``.
"""

import math
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from models.plugins.parts import Part
from models.settings.plugin import own_settings
from privacy.clipping.rule_settings import Grouping, check_attention_strength
from server.aggregation.rule_settings import RuleSettings

if TYPE_CHECKING:
    from torch import Tensor

LOOK_BACK = 9
"""Rounds back to the oldest of the ten newest releases, which a coordinator keeps by default."""

# Two updates have no majority.
_LEAST = 3


class CohortTooSmallError(ValueError):
    """Raised when a rule has too few updates to tell good ones from bad."""


class _MajoritySettings(RuleSettings, frozen=True, kw_only=True):
    """The settings of a rule that just under half of the cohort cannot drag along."""

    @property
    def least_cohort(self) -> int:
        """Return 3."""
        return _LEAST

    def tolerated(self, cohort_size: int) -> int:
        """Return the largest minority."""
        return (cohort_size - 1) // 2


class _TrimmingSettings(RuleSettings, frozen=True, kw_only=True):
    """The settings of a rule that drops a share β, ``trim_share``, of what it is given."""

    trim_share: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        # Written as ``not a < x < b`` so that NaN is refused too.
        if not 0 < self.trim_share < 0.5:
            raise ValueError(f"trim_share must be > 0 and < 0.5, got {self.trim_share}")

    @property
    def least_cohort(self) -> int:
        """Return the smallest cohort of which anything is dropped."""
        return max(_LEAST, math.ceil(round(1 / self.trim_share, 9)))

    def tolerated(self, cohort_size: int) -> int:
        """Return how many are dropped."""
        return trimmed_count(self.trim_share, cohort_size)


class MedianSettings(_MajoritySettings, frozen=True, kw_only=True, tag="median"):
    """The median of every coordinate by itself ([Median] Definition 1).

    Breakdown point: just under half of the cohort. Cost: two reads of each update and a sort for
    each coordinate. If clients' data differ it also throws away what only few of them have learnt.
    """


class TrimmedMeanSettings(_TrimmingSettings, frozen=True, kw_only=True, tag="trimmed-mean"):
    """The mean of every coordinate without its extremes ([Median] Definition 2).

    Breakdown point: ``trim_share``. Cost: as the median.

    Attributes:
        trim_share: β, in (0, 0.5): of n values, floor(βn) are dropped at either end.
    """


class KrumSettings(RuleSettings, frozen=True, kw_only=True, tag="krum"):
    """The updates that are closest to their neighbours; all others are dropped ([Krum] section 4).

    An update's score is the sum of its squared distances to the n - f - 2 nearest others. The
    result is the mean of the ``kept`` updates with the least scores; above one it is Multi-Krum.
    Breakdown point: f, with n >= 2f + 3. Cost: two reads of each update after it was measured, and
    n²/2 inner products of the model's size. Krum alone moves by one client's update a round and is
    slow; if clients' data differ it favours those of the largest group.

    Attributes:
        attackers: f, the bad updates that are reckoned with in a round, at least 0.
        kept: Updates that are averaged, at least 1, at most n - f - 2.
    """

    attackers: int
    kept: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("attackers", 0), ("kept", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")

    @property
    def least_cohort(self) -> int:
        """Return the least n with n >= 2f + 3 and ``kept`` <= n - f - 2."""
        return max(2 * self.attackers + 3, self.kept + self.attackers + 2)

    def tolerated(self, cohort_size: int) -> int:
        """Return f."""
        return self.attackers


class GeometricMedianSettings(_MajoritySettings, frozen=True, kw_only=True, tag="geometric-median"):
    """The point with the least sum of distances to all updates ([RFA] Algorithm 2).

    In the smoothed Weiszfeld iteration each update weighs 1/max(ν, its distance from the point
    before). Breakdown point: just under half of the cohort. Cost: as Krum.

    Attributes:
        smoothing: ν, in parameter units: no distance counts as smaller.
        iterations: Largest number; it ends when a step is below a millionth of the median distance.
    """

    smoothing: float = 1e-6
    iterations: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.smoothing < math.inf:
            raise ValueError(f"smoothing must be > 0 and finite, got {self.smoothing}")
        if not 1 <= self.iterations <= 10_000:
            raise ValueError(f"iterations must lie in [1, 10000], got {self.iterations}")


class TrimmedAttentiveSettings(
    _TrimmingSettings, frozen=True, kw_only=True, tag="trimmed-attentive"
):
    """The attentive mean without the updates that are far off or oppose; our own combination.

    By ``distance`` the floor(βn) updates furthest from the coordinate-wise median take no part, bad
    or not. By ``direction`` those with a median cosine with the others below 0 take none, at most
    floor(βn) and usually nobody: an honest update may be long, but goes where others go ([FLTrust]
    Eq. 2, with the cohort in place of the server's data). By ``history`` it is the cosine with the
    way of the model in the last `LOOK_BACK` rounds, which says more once updates share little. It
    falls back on ``direction`` in the first round of a run, in the first two of each stage of
    growth, and if more than floor(βn) oppose: then the way so far is wrong. The rest, empty places
    too, is weighed as by ``attentive``. Copies, those left out too, share one weight if
    ``sybil_cosine`` is set ([FoolsGold], for one round and with a fixed threshold).

    Breakdown point: ``trim_share``; beyond it, and for what no test sees, as ``attentive``, by
    which one client counts at most e^κ times another. Cost: two reads of each update after it was
    measured, and a sort for each coordinate, or n²/2 inner products of the model's size, which
    ``sybil_cosine`` needs too; by ``history`` one more model in memory.

    Attributes:
        trim_share: β, in (0, 0.5).
        trim_by: The test, by ``distance``, ``direction`` or ``history``.
        sybil_cosine: Cosine from which updates are copies, in (0, 1); None counts copies in full.
        attention_strength: κ; as in ``attentive``.
        grouping: As in ``attentive``.
    """

    trim_by: Literal["distance", "direction", "history"] = "distance"
    sybil_cosine: float | None = None
    attention_strength: float = 0.5
    grouping: Grouping = "tensor"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_attention_strength(self.attention_strength)
        # Written as ``not a < x < b`` so that NaN is refused too. Copies miss 1 by their rounding.
        if self.sybil_cosine is not None and not 0 < self.sybil_cosine < 1:
            raise ValueError(f"sybil_cosine must be > 0 and < 1, got {self.sybil_cosine}")

    @property
    def look_back(self) -> int:
        """Return `LOOK_BACK` by history, else 0."""
        return LOOK_BACK if self.trim_by == "history" else 0


class RulePart(Protocol):
    """A plugin's struct of settings in ``sotto.aggregation``; it imports torch nowhere."""

    @property
    def least_cohort(self) -> int:
        """Return the fewest updates that the rule works with, at least 1."""
        ...

    def tolerated(self, cohort_size: int) -> int:
        """Return how many bad updates among so many do no lasting harm; 0 promises nothing."""
        ...

    def reduce_rows(self, rows: "Tensor") -> "Tensor":
        """Return one value for each column, ``(columns,)``, of ``(cohort, columns)``; float32.

        Called for one part of the columns after another, so no column may depend on another.
        """
        ...


class PluginRule(RuleSettings, frozen=True, kw_only=True, tag="plugin"):
    """A rule that a plugin has in ``sotto.aggregation``: each coordinate is reduced by itself.

    Cost: as the median, with the plugin's own arithmetic in place of the sort.

    Attributes:
        name: The rule's name in the plugin.
        settings: Its settings, as the plugin's own struct has them.
    """

    name: str
    settings: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def own(self) -> RulePart:
        """Return the settings as the plugin's own struct; PluginError if they are not."""
        settings: RulePart = own_settings(Part.AGGREGATION, self.name, self.settings)
        return settings

    @property
    def least_cohort(self) -> int:
        """Return the fewest updates that the rule works with."""
        return self.own.least_cohort

    def tolerated(self, cohort_size: int) -> int:
        """Return how many bad updates among so many do no lasting harm."""
        return self.own.tolerated(cohort_size)


RobustSettings = (
    MedianSettings
    | TrimmedMeanSettings
    | KrumSettings
    | GeometricMedianSettings
    | TrimmedAttentiveSettings
    | PluginRule
)


def trimmed_count(trim_share: float, count: int) -> int:
    """Return floor(βn), the product read as the decimal number that was written."""
    return math.floor(round(trim_share * count, 9))


def check_cohort(settings: RobustSettings, count: int) -> None:
    """Check that a round has enough updates for its rule.

    Raises:
        CohortTooSmallError: If there are too few.
    """
    if count < settings.least_cohort:
        raise CohortTooSmallError(
            f"{_named(settings)} needs at least {settings.least_cohort} updates, got {count}; "
            "raise rounds.quorum, or expect fewer bad clients"
        )


def check_quorum(settings: RobustSettings, quorum: int) -> None:
    """Check before a run that no round may close with fewer updates than its rule needs.

    Raises:
        CohortTooSmallError: If one may.
    """
    if quorum < settings.least_cohort:
        raise CohortTooSmallError(
            f"rounds.quorum must be >= {settings.least_cohort} for {_named(settings)}, "
            f"got {quorum}: a round may close with as few updates"
        )


def _named(settings: RobustSettings) -> str:
    return f'aggregation.rule = "{type(settings).__struct_config__.tag}"'
