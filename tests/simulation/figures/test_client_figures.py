import math

import pytest

from models.tasks.keystrokes import KeystrokeCounts
from models.tasks.metrics import Counts
from simulation.figures.client_figures import client_figures, keystroke_figures


def counted(hits: int, targets: int, log_loss: float = 0.0) -> Counts:
    return Counts(token_count=targets, top1_hits=hits, top3_hits=hits, log_loss_sum=log_loss)


def test_large_clients_weigh_more_in_the_pool_and_not_in_the_mean() -> None:
    # 90 of 100 and 1 of 10: 91/110 pooled, (0.9 + 0.1)/2 by clients, 0.1 for the worst.
    figures = client_figures({"a": counted(90, 100), "b": counted(1, 10)}, is_text=False)

    assert figures == pytest.approx(
        {
            "accuracy": 91 / 110,
            "accuracy_clients_mean": 0.5,
            "accuracy_clients_worst_decile": 0.1,
        }
    )


def test_the_worst_decile_is_the_mean_of_a_tenth() -> None:
    # Twenty clients with 0, 5, ..., 95 hits of 100: the worst two have 0 and 5.
    counts = {f"c{k}": counted(5 * k, 100) for k in range(20)}

    assert client_figures(counts, is_text=False)["accuracy_clients_worst_decile"] == 0.025


def test_the_highest_perplexity_is_the_worst() -> None:
    counts = {"a": counted(1, 10, 10 * math.log(4)), "b": counted(1, 10, 10 * math.log(16))}

    figures = client_figures(counts, is_text=True)

    assert figures["perplexity"] == pytest.approx(8.0)
    assert figures["perplexity_clients_mean"] == pytest.approx(10.0)
    assert figures["perplexity_clients_worst_decile"] == pytest.approx(16.0)


def test_a_client_with_nothing_to_score_counts_nowhere() -> None:
    assert client_figures({"a": Counts()}, is_text=True) == {}
    figures = client_figures({"a": Counts(), "b": counted(1, 2)}, is_text=False)
    assert figures["accuracy_clients_mean"] == 0.5


def test_beside_recall_of_words_stands_what_the_list_lacks() -> None:
    # a types ten words, of which the list lacks two, and ends two sentences; b types nothing.
    own = {
        "a": Counts(token_count=12, top1_hits=4, top3_hits=6, end_count=2, unknown_count=2),
        "b": Counts(token_count=3, end_count=3),
    }

    figures = client_figures(own, is_text=True, of_words=True)

    assert (figures["accuracy"], figures["accuracy_clients_mean"]) == (0.4, 0.4)
    assert (figures["top3_recall"], figures["unknown_words"]) == (0.6, 0.2)
    assert (figures["listed_top1_recall"], figures["listed_top3_recall"]) == (0.5, 0.75)
    assert "unknown_words" not in client_figures(own, is_text=True)


def test_sequences_are_told_as_wholes_too() -> None:
    counts = {
        "a": Counts(token_count=6, top1_hits=5, sequence_count=2, exact_matches=1),
        "b": Counts(token_count=9, top1_hits=9, sequence_count=2, exact_matches=2),
    }

    figures = client_figures(counts, is_text=False)

    assert figures["exact_match"] == 0.75
    assert figures["exact_match_clients_worst_decile"] == 0.5
    assert figures["accuracy"] == 14 / 15


def test_who_types_little_counts_in_the_mean_of_savings_as_much_as_anybody() -> None:
    keys = {
        "a": KeystrokeCounts(keys_without=90, keys_with=45, keys_at_best=9),
        "b": KeystrokeCounts(keys_without=10, keys_with=9, keys_at_best=1),
        "c": KeystrokeCounts(),
    }

    # 54 of 100 keys with suggestions, 10 at best; a saves a half, b a tenth, c typed nothing.
    assert keystroke_figures(keys) == pytest.approx(
        {
            "keystroke_savings": 0.46,
            "keystroke_savings_clients_mean": 0.3,
            "keystroke_savings_clients_worst_decile": 0.1,
            "keystroke_ceiling": 0.9,
        }
    )
    assert keystroke_figures({"c": KeystrokeCounts()}) == {}
