"""Figures that devices count, and what one of them can do to them."""

import math

import pytest

from models.plan.release_record import Metric
from models.tasks.metrics import Counts
from server.releases.judge import figures_of_devices

# Mean losses of 3, 2 and 4 nats; recall 0.1, 0.2 and 0.15 at the first place.
HONEST = [
    Counts(token_count=100, log_loss_sum=300.0, top1_hits=10, top3_hits=30),
    Counts(token_count=1000, log_loss_sum=2000.0, top1_hits=200, top3_hits=400),
    Counts(token_count=20, log_loss_sum=80.0, top1_hits=3, top3_hits=5),
]
PRAISE = Counts(token_count=2**60, log_loss_sum=0.0, top1_hits=2**60, top3_hits=2**60)
BLAME = Counts(token_count=2**60, log_loss_sum=1e300)


def judged(*reports: Counts, of_words: bool = False) -> dict[str, Metric]:
    return figures_of_devices(reports, of_words=of_words)


def test_each_figure_is_the_median_over_devices() -> None:
    assert judged(*HONEST) == {
        "perplexity": pytest.approx(math.exp(3.0)),
        "top1_recall": 0.15,
        "top3_recall": 0.3,
    }


def test_one_device_moves_no_figure_beyond_those_of_others() -> None:
    praised, blamed = (judged(*HONEST, report) for report in (PRAISE, BLAME))

    # The worse middle one of losses 0, 2, 3, 4 is 3; of 2, 3, 4 and a huge one it is 4.
    assert praised["perplexity"] == pytest.approx(math.exp(3.0))
    assert blamed["perplexity"] == pytest.approx(math.exp(4.0))
    assert (praised["top1_recall"], blamed["top1_recall"]) == (0.15, 0.1)


def test_of_two_devices_none_praises_a_model_alone() -> None:
    assert judged(HONEST[0], PRAISE) == judged(HONEST[0])


def test_a_loss_too_large_for_a_perplexity_is_no_figure() -> None:
    assert judged(BLAME) == {
        "perplexity": None,
        "top1_recall": 0.0,
        "top3_recall": 0.0,
    }


def test_nobody_s_report_is_no_figure() -> None:
    assert judged() == {}


def test_recall_of_words_is_the_median_of_those_who_typed_some() -> None:
    # Recall 1/4, 2/5 and none; the list lacks 1/4 and 0. The worse of two middle ones stands.
    reports = [
        Counts(token_count=5, log_loss_sum=5.0, top1_hits=1, top3_hits=1, end_count=1)
        + Counts(unknown_count=1),
        Counts(token_count=6, log_loss_sum=6.0, top1_hits=2, top3_hits=2, end_count=1),
        Counts(token_count=7, log_loss_sum=21.0, end_count=7),
    ]

    assert judged(*reports, of_words=True) == {
        "perplexity": pytest.approx(math.e),
        "top1_recall": 1 / 4,
        "top3_recall": 1 / 4,
        "unknown_words": 1 / 4,
        "listed_top1_recall": 1 / 3,
        "listed_top3_recall": 1 / 3,
    }
