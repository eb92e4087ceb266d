"""The bigram that stands beside a start."""

import torch

from simulation.starting.floor import bigram_figures
from simulation.starting.texts import Corpus


def test_the_bigram_is_counted_on_all_the_text_of_the_start_and_on_no_other() -> None:
    # Rows 2 and 3 follow each other in all sentences but the first, which is row 7; 1 ends each.
    usual, first = torch.tensor([2, 3, 1]), torch.tensor([7, 1])
    corpus = Corpus(pieces=(first, *(usual,) * 12), facts=(), sha256="")
    measured = {"usual": [usual], "first": [first], "never": [torch.tensor([6, 1])]}

    figures = bigram_figures(corpus, measured, vocabulary_size=8)

    assert figures["usual.top1_recall"] == 1.0
    assert (figures["first.top1_recall"], figures["first.top3_recall"]) == (0.0, 1.0)
    assert figures["never.top3_recall"] == 0.0


def test_a_text_of_one_piece_is_enough() -> None:
    learnt = torch.tensor([2, 3, 1])

    figures = bigram_figures(Corpus((learnt,), (), ""), {"same": [learnt]}, vocabulary_size=5)

    assert figures["same.top1_recall"] == 1.0


def test_text_of_the_first_half_of_the_epochs_is_counted_too() -> None:
    late, early = torch.tensor([2, 1]), torch.tensor([3, 1])
    corpus = Corpus((late,), (), "", early=(early,) * 3)

    figures = bigram_figures(corpus, {"early": [early]}, vocabulary_size=8)

    assert figures["early.top1_recall"] == 1.0
