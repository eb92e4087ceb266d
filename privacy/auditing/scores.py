"""Checks of the scores that every estimator of an audit reads.

A score says how much a release looks as if one canary had taken part: higher is more. Nothing
here or in the estimators knows a model, a federation or where scores come from.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]
Coins = NDArray[np.bool_]


class AuditError(ValueError):
    """Raised when scores cannot be judged; the text says what is wrong with them and what to do."""


def checked_scores(values: ArrayLike, name: str = "scores") -> Scores:
    """Return scores as float64 of their shape; AuditError if one is NaN or infinite."""
    scores = np.asarray(values, dtype=np.float64)
    bad = int(np.count_nonzero(~np.isfinite(scores)))
    if bad:
        raise AuditError(
            f"{name} must be finite, {bad} of {scores.size} are NaN or infinite; "
            "the release they were read from is no usable model"
        )
    return scores


def checked_coins(values: ArrayLike, scores: Scores, name: str = "included") -> Coins:
    """Return one boolean for each score, or raise AuditError."""
    coins = np.asarray(values)
    if coins.dtype != np.bool_ or coins.shape != scores.shape:
        raise AuditError(
            f"{name} must be booleans of shape {scores.shape}, got {coins.dtype} of {coins.shape}"
        )
    return coins


def require_both_kinds(coins: Coins, least: int) -> tuple[int, int]:
    """Return the counts of canaries in and out; AuditError if either is below ``least``."""
    included = int(np.count_nonzero(coins))
    left_out = coins.size - included
    if min(included, left_out) < least:
        raise AuditError(
            f"at least {least} canaries must be included and {least} left out, "
            f"got {included} and {left_out}; raise the number of canaries or rounds"
        )
    return included, left_out


def check_failure_rate(value: float, name: str = "failure_rate") -> float:
    """Return a chance of being wrong, 1 - confidence, or raise AuditError outside (0, 0.5)."""
    if not 0 < value < 0.5:
        raise AuditError(f"{name} must be above 0 and below 0.5, got {value:g}")
    return value
