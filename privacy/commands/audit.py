"""The answer to ``sotto-privacy audit``: a judgement of the scores of canaries in a file."""

import math
from pathlib import Path

from privacy.auditing.judgement import Judgement, in_words, judge, verdict
from privacy.auditing.scores_file import read_scores
from privacy.commands.answer import Answer, Figure


def audit_scores(path: Path, *, claimed: float | None) -> tuple[Answer, list[str]]:
    """Judge a file of scores; return the answer, and what contradicts the claim, a sentence each.

    ``claimed`` is the z that the ledger names; None where nothing is claimed.

    Raises:
        AuditError: If the file cannot be read as scores, or there are too few.
        OSError: If it cannot be read at all.
        ValueError: If the claim is no noise multiplier.
    """
    file = read_scores(path)
    judgement = judge(file.scores, file.included, claimed=claimed)
    words = {
        **in_words(judgement),
        "worst canary": file.names[judgement.worst.canary],
        "verdict": verdict(judgement),
    }
    lines = [f"{name:52} {value}" for name, value in words.items()]
    return Answer(_figures(judgement, file.names), lines), judgement.faults


def _figures(judgement: Judgement, names: list[str]) -> dict[str, Figure]:
    estimate, bound = judgement.estimate, judgement.bound
    return {
        "claimed_noise_multiplier": judgement.claimed_noise_multiplier,
        "noise_multiplier": _finite(estimate.noise_multiplier),
        "noise_multiplier_lower": _finite(estimate.lower),
        "noise_multiplier_upper": _finite(estimate.upper),
        "worst_canary": names[judgement.worst.canary],
        "worst_noise_multiplier": _finite(judgement.worst.noise_multiplier),
        "worst_noise_multiplier_upper": _finite(judgement.worst.upper),
        "delta": bound.delta,
        "claimed_epsilon": judgement.claimed_epsilon,
        "epsilon_lower_bound": bound.epsilon,
        "guesses": bound.guess_count,
        "right_guesses": bound.correct_count,
        "holds": not judgement.faults if judgement.claimed_noise_multiplier else None,
    }


def _finite(value: float) -> float | None:
    """Return the value; None where canaries cannot be told apart."""
    return value if math.isfinite(value) else None
