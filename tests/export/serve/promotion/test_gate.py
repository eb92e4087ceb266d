"""What a figure must be beside the present one, that a version is served."""

import math

import pytest

from export.serve.promotion.gate import (
    GateError,
    believed_figure,
    check_counted_alike,
    judge,
)


@pytest.mark.parametrize(
    ("metric", "old", "new", "largest_loss", "passes"),
    [
        # Shares lose points: 0.20 to 0.15 are five.
        ("valid_top3_recall", 0.20, 0.15, 5.1, True),
        ("valid_top3_recall", 0.20, 0.15, 4.9, False),
        ("stop_accuracy", 0.99, 0.90, 8.0, False),
        ("stop_accuracy", 0.90, 0.99, 0.0, True),
        ("character_error_rate", 0.10, 0.12, 1.9, False),
        ("character_error_rate", 0.12, 0.10, 0.0, True),
        # Everything else loses per cent of itself: 36.8 to 47.5 are 29.08.
        ("valid_perplexity", 36.8, 47.5, 29.0, False),
        ("valid_perplexity", 36.8, 47.5, 29.1, True),
        ("valid_perplexity", 47.5, 36.8, 0.0, True),
        ("mel_l1", 0.70, 0.71, 1.0, False),
        ("mel_l1", 0.70, 0.71, 1.5, True),
        ("pesq", 2.0, 1.9, 5.1, True),
        ("pesq", 2.0, 1.9, 4.9, False),
        # The first one, and one after a model that diverged.
        ("perplexity", None, 1e300, 0.0, True),
        ("perplexity", math.inf, 90.0, 0.0, True),
        ("perplexity", 90.0, math.inf, math.inf, False),
        ("top3_recall", 0.2, math.nan, 100.0, False),
        ("top3_recall", None, math.nan, 100.0, False),
        ("top3_recall", 0.2, 0.2, math.nan, False),
        ("round_s", 1.0, 1.0, 100.0, False),
    ],
)
def test_a_version_may_be_worse_by_so_much_of_its_own_unit(
    metric: str, old: float | None, new: float, largest_loss: float, *, passes: bool
) -> None:
    if passes:
        assert judge(metric, old, new, largest_loss=largest_loss).startswith(metric)
    else:
        with pytest.raises(GateError, match=metric):
            judge(metric, old, new, largest_loss=largest_loss)


def test_a_bundle_s_figures_are_believed_if_they_say_how_good_it_is() -> None:
    figures = {"round": 3, "perplexity": None, "top3_recall": 0.25, "attack": "none"}

    # A perplexity that JSON cannot hold was too large for it.
    assert believed_figure("perplexity", figures, round_number=3) == math.inf
    assert believed_figure("top3_recall", figures, round_number=3) == 0.25
    for metric in ("round", "attack", "accuracy"):
        with pytest.raises(GateError, match=r"round 3's bundle .* it has perplexity, top3_recall;"):
            believed_figure(metric, figures, round_number=3)
    with pytest.raises(GateError, match=r"it has none$"):
        believed_figure("round", {"round": 3}, round_number=3)


def test_recall_of_before_words_alone_is_compared_with_its_like_only() -> None:
    before = {"valid_top3_recall": 0.22, "valid_perplexity": 90.0}
    now = {"valid_top3_recall": 0.18, "valid_unknown_words": 0.05, "valid_perplexity": 90.0}

    check_counted_alike("valid_top3_recall", before, before)
    check_counted_alike("valid_top3_recall", now, now)
    check_counted_alike("valid_perplexity", before, now)
    check_counted_alike("top3_recall", now)
    with pytest.raises(GateError, match=r"before words alone.*--held-out, or compare perplexity"):
        check_counted_alike("valid_top3_recall", before, now)
