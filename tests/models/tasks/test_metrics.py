import math

import msgspec
import pytest

from models.tasks.metrics import Counts


def test_figures_are_quotients_of_counts() -> None:
    counts = Counts(token_count=4, log_loss_sum=4 * math.log(20), top1_hits=1, top3_hits=3)

    assert counts.perplexity == pytest.approx(20)
    assert counts.mean_log_loss == pytest.approx(math.log(20))
    assert (counts.top1_recall, counts.top3_recall) == (0.25, 0.75)
    assert counts.accuracy == 0.25


def test_counts_of_two_people_add_up() -> None:
    one = Counts(token_count=1, log_loss_sum=2.0, top1_hits=1, top3_hits=1)
    other = Counts(token_count=3, log_loss_sum=4.5, top1_hits=0, top3_hits=2)

    assert one + other == Counts(token_count=4, log_loss_sum=6.5, top1_hits=1, top3_hits=3)
    assert one + Counts() == one


def test_recall_of_words_is_over_typed_words_and_perplexity_over_every_token() -> None:
    # "see you", "bye": three words and two ends; "bye" is not in the list, "you" stood second.
    counts = Counts(
        token_count=5,
        log_loss_sum=5 * math.log(8),
        top1_hits=1,
        top3_hits=2,
        end_count=2,
        unknown_count=1,
    )

    assert counts.figures(of_words=True) == pytest.approx(
        {
            "perplexity": 8.0,
            "top1_recall": 1 / 3,
            "top3_recall": 2 / 3,
            "unknown_words": 1 / 3,
            "listed_top1_recall": 1 / 2,
            "listed_top3_recall": 2 / 2,
        }
    )
    # Two texts alike: twice of everything, and the same shares.
    assert (counts + counts).figures(of_words=True) == counts.figures(of_words=True)
    assert (counts + counts).word_count == 6


def test_a_task_without_words_has_the_figures_it_had() -> None:
    counts = Counts(token_count=4, log_loss_sum=0.0, top1_hits=1, top3_hits=3)

    assert counts.figures(of_words=False) == {
        "perplexity": 1.0,
        "top1_recall": 0.25,
        "top3_recall": 0.75,
    }


def test_counts_that_a_version_of_before_wrote_keep_their_figures() -> None:
    written = (
        b'{"token_count":4,"log_loss_sum":0.0,"top1_hits":1,"top3_hits":3,'
        b'"sequence_count":0,"exact_matches":0}'
    )

    assert msgspec.json.decode(written, type=Counts).top3_recall == 0.75


def test_text_without_a_typed_word_has_a_perplexity_and_no_recall() -> None:
    counts = Counts(token_count=2, log_loss_sum=0.0, end_count=2)

    assert counts.figures(of_words=True) == {"perplexity": 1.0}
    with pytest.raises(ValueError, match="one scored token that is typed, got 0"):
        _ = counts.top3_recall
    unknown = Counts(token_count=2, log_loss_sum=0.0, end_count=1, unknown_count=1)
    assert unknown.figures(of_words=True) == {
        "perplexity": 1.0,
        "top1_recall": 0.0,
        "top3_recall": 0.0,
        "unknown_words": 1.0,
    }
    assert Counts().figures(of_words=True) == {}


def test_sequences_count_beside_their_targets() -> None:
    one = Counts(token_count=5, sequence_count=2, exact_matches=1)
    other = Counts(token_count=9, sequence_count=3, exact_matches=3)

    assert (one + other).exact_match == 4 / 5
    assert one.exact_match == 0.5


def test_a_loss_too_large_for_a_float_is_infinite_perplexity() -> None:
    assert Counts(token_count=1, log_loss_sum=1000.0).perplexity == math.inf


@pytest.mark.parametrize("figure", ["perplexity", "mean_log_loss", "top1_recall", "top3_recall"])
def test_a_figure_of_nothing_is_refused(figure: str) -> None:
    with pytest.raises(ValueError, match="at least one scored token"):
        getattr(Counts(), figure)


def test_a_task_without_sequences_has_no_exact_match() -> None:
    with pytest.raises(ValueError, match="at least one scored sequence"):
        _ = Counts(token_count=5).exact_match
