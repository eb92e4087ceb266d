"""Typing with and without a person's own words, against the other counts and by hand."""

import pytest
import torch

from export.runtime.word_index import WordIndex
from models.networks.registry import WordNetwork, build_network, word_network
from models.settings.model import GruLmSettings
from models.tasks.keystrokes import keystroke_savings
from models.tasks.next_word import NextWord
from models.text.vocabulary import Vocabulary
from simulation.figures.own_words import type_both_ways

LISTED = ("see", "you", "so", "soon", "some", "sun", "the", "that")
WORDS = Vocabulary(("<unk>", "<eos>", *LISTED))
TYPED = [["see", "you", "soon"], ["that", "sun", "zyx"], ["<unk>", "some", "the", "so"]] * 5


@pytest.fixture
def network() -> WordNetwork:
    torch.manual_seed(4)
    settings = GruLmSettings(vocabulary_size=len(WORDS), hidden_size=8, tied=True)
    network = word_network(build_network(settings))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_()
    return network


def test_the_model_alone_is_counted_as_everywhere_else(network: WordNetwork) -> None:
    [(alone, _)] = type_both_ways([network], WORDS, WordIndex(WORDS), before=(), typed=TYPED)

    counts = NextWord().evaluate(network, [torch.tensor(WORDS.token_stream(TYPED))])
    keys = keystroke_savings(network, WORDS, [TYPED])
    assert (alone.words, alone.top1_hits, alone.top3_hits) == (
        counts.word_count,
        counts.top1_hits,
        counts.top3_hits,
    )
    assert (alone.keys_without, alone.keys_with) == (keys.keys_without, keys.keys_with)
    assert alone.savings == pytest.approx(keys.savings)


def test_what_the_list_passes_over_is_typed_by_nobody(network: WordNetwork) -> None:
    index = WordIndex(WORDS)
    smiling = [["\U0001f600"], *([*sentence, "\U0001f600"] for sentence in TYPED), ["\U0001f600"]]

    with_signs = type_both_ways([network], WORDS, index, before=smiling, typed=smiling)

    assert with_signs == type_both_ways([network], WORDS, index, before=TYPED, typed=TYPED)


def test_a_word_that_the_list_lacks_is_offered_once_it_was_typed_twice(
    network: WordNetwork,
) -> None:
    # The model spreads its share over eight words alike; all of the person's is "zyxwv".
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    again = [["zyxwv"]] * 3

    new, known = (
        own
        for before in ((), [["zyxwv"]] * 400)
        for _, own in type_both_ways([network], WORDS, WordIndex(WORDS), before=before, typed=again)
    )

    # Six keys the first and the second time, two the third, when it waits behind its first letter.
    assert (new.keys_without, new.keys_with, new.top1_hits) == (18, 14, 0)
    # Of 400 words, the first of which count a little less, it leads with 0.12 over 0.11.
    assert (known.keys_with, known.top1_hits, known.words) == (3, 3, 3)


def test_a_word_that_a_person_types_often_rises(network: WordNetwork) -> None:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()

    [both] = type_both_ways(
        [network], WORDS, WordIndex(WORDS), before=[["that"]] * 9, typed=[["that"]]
    )

    # Alone all are alike, and of equal ones the first of the list lead: "that" is the last of
    # eight, and the second of two that begin with "t".
    assert (both.alone.keys_with, both.alone.top3_hits) == (2, 0)
    assert (both.with_own_words.keys_with, both.with_own_words.top1_hits) == (1, 1)
