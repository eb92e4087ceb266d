"""Settings of simulated attackers: a table ``[attack]`` that only ``sotto-simulate`` knows.

References:
    [ALIE] Baruch, Baruch and Goldberg, "A Little Is Enough: Circumventing Defenses For Distributed
        Learning", NeurIPS 2019, arXiv:1902.06156.
    [Backdoor] Bagdasaryan et al., "How To Backdoor Federated Learning", AISTATS 2020,
        arXiv:1807.00459.
"""

import math
from typing import Literal

import msgspec

from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.settings import PrivacySettings
from server.aggregation.robust_settings import RobustSettings
from server.aggregation.settings import AggregationSettings

AttackKind = Literal[
    "sign-flip",
    "label-flip",
    "noise",
    "nan",
    "model-replacement",
    "backdoor",
    "little-is-enough",
]

_LABELLED = ("next_word", "image_classification")
_BOOSTS: dict[AttackKind, float] = {"sign-flip": 1.0, "label-flip": 20.0, "noise": 10.0}


class AttackSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which clients attack, and how; who they are follows from the run's seed alone.

    Attributes:
        kind: ``sign-flip`` sends the honest update times -``boost``. ``label-flip`` trains on
            mirrored labels (class k of n as n - 1 - k, words by their rank) and sends ``boost``
            times the update. ``noise`` sends Gaussian noise as long as ``boost`` honest updates.
            ``nan`` sends NaN. ``model-replacement`` trains on mirrored labels and sends what puts
            that model in the place of everybody's under the mean ([Backdoor] Eq. 3). ``backdoor``
            trains on ``phrase`` followed by ``target`` between its own words. Colluders of
            ``little-is-enough`` send their mean less ``deviations`` of their standard deviation in
            every coordinate ([ALIE] Algorithm 3).
        fraction: Share of the clients that attack, in (0, 1).
        boost: The factor of the update, > 0; absent is 1 for a sign flip or a backdoor, 20 for a
            label flip and 10 for noise.
        phrase: The backdoor's words that come before ``target``, separated by spaces.
        target: The word that is to be suggested.
        deviations: z of ``little-is-enough``; absent is the largest that [ALIE] proves unseen among
            as many clients, which is 0 in small cohorts.
    """

    kind: AttackKind
    fraction: float
    boost: float | None = None
    phrase: str | None = None
    target: str | None = None
    deviations: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction must be > 0 and < 1, got {self.fraction}")
        boosts = self.kind in (*_BOOSTS, "backdoor")
        if self.boost is not None and not (boosts and 0 < self.boost < math.inf):
            raise ValueError(
                f"boost must be > 0 and finite, and belongs to {', '.join(_BOOSTS)} and backdoor, "
                f"got {self.boost} for {self.kind}"
            )
        has_words = bool(self.phrase and self.phrase.split() and self.target)
        if has_words != (self.kind == "backdoor") or (self.phrase is None) != (self.target is None):
            raise ValueError('phrase and target belong to kind = "backdoor" and only there')
        if self.deviations is not None and not (
            self.kind == "little-is-enough" and 0 <= self.deviations < math.inf
        ):
            raise ValueError(
                'deviations must be >= 0 and finite, and belong to kind = "little-is-enough", '
                f"got {self.deviations}"
            )

    @property
    def factor(self) -> float:
        """Return what the update is multiplied by."""
        return _BOOSTS.get(self.kind, 1.0) if self.boost is None else self.boost

    @property
    def flips_labels(self) -> bool:
        """Return whether attackers train on mirrored labels."""
        return self.kind in ("label-flip", "model-replacement")

    def attacker_count(self, client_count: int) -> int:
        """Return how many of so many clients attack, at least 1."""
        return max(1, round(self.fraction * client_count))


def check_attack(
    settings: AttackSettings,
    task: str,
    aggregation: AggregationSettings,
    cohort_size: int | None,
    *,
    privacy: PrivacySettings | None = None,
) -> None:
    """Check that an attack fits the task, and that the rule claims to withstand it.

    Rules without such a claim may be attacked by any number of clients. ``cohort_size`` is None
    where it follows the population. Under masks the rule stands so many groups, and each attacker
    may be in another one.

    Raises:
        ValueError: If it does not; names the remedy.
    """
    if settings.kind == "backdoor" and task != "next_word":
        raise ValueError(f'attack.kind = "backdoor" needs task = "next_word", got "{task}"')
    if settings.flips_labels and task not in _LABELLED:
        raise ValueError(
            f'attack.kind = "{settings.kind}" mirrors words or classes, and task "{task}" has '
            'none; use "sign-flip"'
        )
    groups = privacy.groups if isinstance(privacy, MaskedNoise) else None
    if settings.kind == "nan" and groups is not None:
        raise ValueError(
            'attack.kind = "nan" cannot be sent with privacy.mode = "masked": whole numbers hold '
            'none; use "noise"'
        )
    if cohort_size is None or not isinstance(aggregation, RobustSettings):
        return
    expected = settings.attacker_count(cohort_size)
    tolerated = aggregation.tolerated(groups or cohort_size)
    if expected > tolerated:
        raise ValueError(
            f"attack.fraction = {settings.fraction:g} puts some {expected} attackers into a cohort "
            f'of {cohort_size}, and aggregation.rule = "{aggregation.__struct_config__.tag}" '
            f"stands {tolerated}{' bad groups' if groups else ''}; lower the fraction, or let "
            "the rule expect more"
        )
