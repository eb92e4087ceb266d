"""Refuse evaluations that do not go with a guarantee, and count those to come.

The choice of devices must depend on nobody's text. If secret coins draw the rounds' cohorts, it
must not depend on those coins either: the devices asked later would reveal a round's draw, and the
draw would amplify nothing. So coins of their own, one for everybody enrolled, draw an evaluation's
devices; it lasts to its deadline, and any number of reports is enough.

A device may still be away because its round drew it; that costs nothing. With B the likelihood
ratio of its update and A that of its counts, both of mean 1, the accountant composes ((1-q) + qB)
A; what happens is (1-q) A + qB. With A' an independent copy of A the latter is the mean of (1-q) A
+ qBA' given A and B, so smaller in convex order. That in turn is smaller than with A' = A, because
among joint laws the equal one spreads a sum most. Both directions of (ε, δ) are means of convex
functions of the ratio.
"""

from privacy.accounting.events import EvaluationRelease
from privacy.noise.calibrated_settings import LocalNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.plan_events import evaluation_event
from privacy.noise.settings import PrivacySettings
from server.config.evaluation import EvaluationSettings
from server.config.rounds import RoundSettings


def check_evaluation(
    evaluation: EvaluationSettings,
    rounds: RoundSettings,
    privacy: PrivacySettings,
    *,
    hides_examples: bool,
) -> None:
    """Check that an evaluation by devices goes with the noise mode.

    Raises:
        ValueError: If it does not; names the setting and the remedy.
    """
    devices = evaluation.kind == "devices"
    if devices and hides_examples:
        raise _refused(
            "training.example_privacy promises that the coordinator sees no sentence, and counts "
            "of held-out sentences reach it before any noise"
        )
    if not privacy.guarantees_privacy:
        if evaluation.noise is not None:
            raise ValueError(
                "evaluation.noise hides one person's counts where the models hide the person; "
                f'privacy.mode = "{_mode(privacy)}" promises nothing: remove it'
            )
        return
    if not devices:
        return
    for refused, reason in (
        (
            isinstance(privacy, LocalNoise | MaskedNoise),
            f'privacy.mode = "{_mode(privacy)}" promises that the coordinator sees nobody\'s data, '
            "and counts reach it before any noise",
        ),
        (
            evaluation.noise is None,
            "it publishes counts without noise, which no guarantee covers: give evaluation.noise",
        ),
    ):
        if refused:
            raise _refused(reason)
    if rounds.selection == "sampled":
        _check_coins(evaluation, rounds)
    evaluation_event(evaluation, rounds, privacy)  # Refuses draws that no accountant amplifies.


def _refused(reason: str) -> ValueError:
    return ValueError(
        f'evaluation.kind = "devices" is refused: {reason}; or set '
        'evaluation.kind = "public" or "none"'
    )


def coming_evaluations(
    evaluation: EvaluationSettings,
    rounds: RoundSettings,
    privacy: PrivacySettings,
    coming: range,
) -> list[EvaluationRelease]:
    """Return what the evaluations after some rounds tell the accountant, one event each."""
    event = evaluation_event(evaluation, rounds, privacy)
    if event is None:
        return []
    return [event for number in coming if evaluation.asks_devices(number)]


def draws_by_coins(evaluation: EvaluationSettings, rounds: RoundSettings) -> bool:
    """Return whether secret coins draw the devices of an evaluation."""
    return evaluation.noise is not None and rounds.selection == "sampled"


def _check_coins(evaluation: EvaluationSettings, rounds: RoundSettings) -> None:
    size, population = evaluation.cohort_size or 0, rounds.population_size or 0
    if size > population:
        raise ValueError(
            f"evaluation.cohort_size must be <= rounds.population_size {population}, got {size}"
        )
    if evaluation.quorum != 1:
        raise ValueError(
            'evaluation.quorum must be 1 with rounds.selection = "sampled", got '
            f"{evaluation.quorum}: whether it was reached would tell who was drawn"
        )


def _mode(privacy: PrivacySettings) -> str:
    return str(type(privacy).__struct_config__.tag)
