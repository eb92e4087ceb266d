"""Sentences as examples: each depends on itself alone, and every token is in one of them."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from models.tasks.text_streams import PADDING, sentence_edges, sentence_window
from models.text.vocabulary import EOS

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=12)


def text(lengths: list[int]) -> Tensor:
    """Return sentences of these lengths, ``<eos>`` included; words number their places."""
    stream = torch.arange(100, 100 + sum(lengths))
    stream[torch.tensor(lengths).cumsum(0) - 1] = EOS
    return stream


@given(lengths=LENGTHS, longest=st.integers(1, 9))
def test_every_token_is_in_one_example_that_never_holds_two_sentences(
    lengths: list[int], longest: int
) -> None:
    stream = text(lengths)

    edges = sentence_edges(stream, longest).tolist()

    assert [place for first, last in edges for place in range(first, last)] == [*range(len(stream))]
    for first, last in edges:
        assert 1 <= last - first <= longest
        assert EOS not in stream[first : last - 1]


def test_a_long_sentence_is_cut_from_its_own_start() -> None:
    # Sentences of 2, 7 and 1 tokens, and a rest of 2 without an end.
    stream = torch.cat([text([2, 7, 1]), torch.tensor([7, 8])])

    edges = sentence_edges(stream, 3)

    assert edges.tolist() == [[0, 2], [2, 5], [5, 8], [8, 9], [9, 10], [10, 12]]


@given(lengths=LENGTHS, longest=st.integers(1, 9), removed=st.integers(0, 11))
def test_removing_a_sentence_removes_its_examples_and_changes_no_other(
    lengths: list[int], longest: int, removed: int
) -> None:
    def examples(sentences: list[Tensor]) -> list[list[int]]:
        stream = torch.cat(sentences)
        edges = sentence_edges(stream, longest)
        window = sentence_window(stream, edges)
        return sorted(
            [*inputs[targets != PADDING].tolist(), *targets[targets != PADDING].tolist()]
            for inputs, targets in zip(window.inputs, window.targets, strict=True)
        )

    sentences = list(torch.split(text(lengths), lengths))
    others = [one for place, one in enumerate(sentences) if place != removed % len(lengths)]
    own = sentences[removed % len(lengths)]

    assert examples(sentences) == sorted((examples(others) if others else []) + examples([own]))


def test_an_example_is_read_from_an_end_of_sentence_whatever_stood_before() -> None:
    stream = torch.tensor([5, 6, EOS, 7, 8, 9, 4, EOS])

    window = sentence_window(stream, sentence_edges(stream, 3))

    assert window.inputs.tolist()[0] == [EOS, 5, 6]
    assert window.inputs.tolist()[1] == [EOS, 7, 8]
    assert window.inputs[2, :2].tolist() == [EOS, 4]
    assert window.targets.tolist() == [[5, 6, EOS], [7, 8, 9], [4, EOS, PADDING]]
    assert window.starts_text
