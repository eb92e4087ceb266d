import math
import unicodedata
from collections.abc import Sequence
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from export.bundles.keyboard_bundle import Bundle
from export.graphs.registry import exporter_for
from export.runtime.next_word import NextWords, in_context, split_at_cursor
from export.runtime.word_graph import NextWordGraph, Prediction, State
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network
from models.settings.model import TransformerLmSettings, schema_of
from models.tasks.keystrokes import keystroke_savings
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector, named_tensors
from tests.export.conftest import SETTINGS, WORDS, random_parameters


class CountingGraph(NextWordGraph):
    """Remember what was read."""

    def __init__(self, graph: bytes) -> None:
        super().__init__(graph)
        self.reads: list[list[int]] = []

    def step(self, tokens: NDArray[np.int64], state: State, *, k: int) -> Prediction:
        self.reads.append(tokens[0].tolist())
        return super().step(tokens, state, k=k)


@pytest.fixture
def counting(bundle: Bundle) -> CountingGraph:
    return CountingGraph(bundle.graph)


def words_of(keyboard: NextWords, text: str) -> list[str]:
    return [suggestion.word for suggestion in keyboard.suggest(text)]


def biased(parameters: FlatVector, favourites: Sequence[str]) -> NextWordGraph:
    """Return a graph in which each word is e^50 times likelier than the one after it."""
    schema = schema_of(SETTINGS)
    flat = parameters.copy()
    bias = flat[schema.slices["output.bias"]]
    for rank, word in enumerate(favourites):
        bias[WORDS.index(word)] = 50 * (len(favourites) - rank)
    model = exporter_for(SETTINGS).build(named_tensors(schema, flat))
    return NextWordGraph(model.SerializeToString())


@pytest.mark.parametrize(
    ("text", "sentences", "begun"),
    [
        ("", [[]], ""),
        ("see", [[]], "see"),
        ("See you ", [["see", "you"]], ""),
        ("see you th", [["see", "you"]], "th"),
        ("I go. ", [["i", "go"], []], ""),
        ("I go.", [["i", "go"], []], ""),
        ("I go, ", [["i", "go"]], ""),
        ("I go\n", [["i", "go"], []], ""),
        ("I go! We g", [["i", "go"], ["we"]], "g"),
        ("I don'", [["i"]], "don'"),
        ("I don’", [["i"]], "don'"),
        ("I don't", [["i"]], "don't"),
        ("the '", [["the"]], ""),
        (":'", [[]], ""),
        ("cafe\u0301", [[]], "café"),
        ("in room 12", [["in", "room"]], "<unk>"),
        ("in room 12 ", [["in", "room", "<unk>"]], ""),
        ("me@home.or", [[]], "<unk>"),
    ],
)
def test_a_text_is_parted_at_the_cursor(text: str, sentences: list[list[str]], begun: str) -> None:
    assert split_at_cursor(text) == (sentences, begun)


@settings(deadline=None)
@given(st.text(max_size=50) | st.text(alphabet="ax0'’:;=-. \n<>/@_", max_size=50))
def test_any_text_gets_an_answer_of_allowed_words(graph: NextWordGraph, text: str) -> None:
    found = NextWords(graph, Vocabulary(WORDS)).suggest(text)

    assert len(found) <= 3
    assert {suggestion.word for suggestion in found} <= set(WORDS[2:])


def test_next_words_are_the_likeliest_after_the_text(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    # <eos> stands before a text, as in training.
    read = np.array([[1, *vocabulary.encode(["i", "see"])]])
    distribution = graph.step(read, graph.fresh_state(), k=1).distribution[0]
    ranked = [row for row in np.argsort(-distribution) if row > 1]

    found = NextWords(graph, vocabulary).suggest("I see ")

    assert [suggestion.word for suggestion in found] == [WORDS[row] for row in ranked[:3]]
    expected = [math.exp(distribution[row]) for row in ranked[:3]]
    assert [suggestion.probability for suggestion in found] == pytest.approx(expected)


def test_unknown_words_and_sentence_ends_are_never_suggested(
    parameters: FlatVector, vocabulary: Vocabulary
) -> None:
    keyboard = NextWords(biased(parameters, ["<unk>", "<eos>", "go", "we", "a"]), vocabulary)

    assert words_of(keyboard, "the ") == ["go", "we", "a"]
    assert words_of(keyboard, "the <") == ["go", "we", "a"]


def test_a_begun_word_is_completed_by_the_likeliest_words_that_begin_so(
    parameters: FlatVector, vocabulary: Vocabulary
) -> None:
    graph = biased(parameters, ["go", "seen", "a", "seeing", "sea", "see"])
    keyboard = NextWords(graph, vocabulary, slot_count=3)

    assert words_of(keyboard, "I s") == ["seen", "seeing", "sea"]
    assert words_of(keyboard, "I SEE") == ["seen", "seeing", "see"]
    assert words_of(keyboard, "I seei") == ["seeing"]
    assert words_of(keyboard, "I can’") == ["can't"]
    assert words_of(keyboard, "I seex") == []
    assert words_of(keyboard, "I 12") == []


@pytest.mark.parametrize("slot_count", [1, 2, 5, 100])
def test_there_are_as_many_suggestions_as_slots_or_words(
    graph: NextWordGraph, vocabulary: Vocabulary, slot_count: int
) -> None:
    keyboard = NextWords(graph, vocabulary, slot_count=slot_count)

    assert len(keyboard.suggest("the ")) == min(slot_count, len(WORDS) - 2)
    assert len(keyboard.suggest("the s")) == min(slot_count, 4)


def test_each_word_is_read_once_and_letters_cost_nothing(
    counting: CountingGraph, vocabulary: Vocabulary
) -> None:
    keyboard = NextWords(counting, vocabulary)
    text = "we see. you go"

    for end in range(len(text) + 1):
        keyboard.suggest(text[:end])

    we, see, you = vocabulary.encode(["we", "see", "you"])
    assert counting.reads == [[1], [we], [see, 1], [you]]


def test_going_back_reads_the_text_again(counting: CountingGraph, vocabulary: Vocabulary) -> None:
    keyboard = NextWords(counting, vocabulary)

    keyboard.suggest("we see the ")
    keyboard.suggest("we see ")
    keyboard.suggest("we go ")

    we, see, the, go = vocabulary.encode(["we", "see", "the", "go"])
    assert counting.reads == [[1, we, see, the], [1, we, see], [1, we, go]]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text(alphabet="seago. 1'", max_size=20), min_size=1, max_size=5))
def test_carried_state_changes_no_suggestion(graph: NextWordGraph, texts: list[str]) -> None:
    carried = NextWords(graph, Vocabulary(WORDS))

    for text in texts:
        fresh = NextWords(graph, Vocabulary(WORDS)).suggest(text)
        found = carried.suggest(text)
        assert [word.word for word in found] == [word.word for word in fresh]
        assert [word.probability for word in found] == pytest.approx(
            [word.probability for word in fresh], rel=1e-4
        )


def test_a_pasted_megabyte_is_read_from_near_its_end(
    counting: CountingGraph, vocabulary: Vocabulary
) -> None:
    keyboard = NextWords(counting, vocabulary)
    text = "go " * 350_000

    keyboard.suggest(text)
    keyboard.suggest(text + "we ")

    # Between one and two blocks of 1024 characters, three to a word.
    assert 1024 / 3 - 1 < len(counting.reads[0]) <= 2048 / 3 + 1
    assert counting.reads[1:] == [vocabulary.encode(["we"])]


def test_of_a_long_text_only_the_end_is_put_into_order(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Mock(wraps=unicodedata.normalize)
    monkeypatch.setattr(unicodedata, "normalize", spy)

    found = split_at_cursor("a" + "\u0315\u0300" * 20_000 + " we s")

    assert found == ([["we"]], "s")
    # The 1024 to 2047 characters at the end are marks but for 5, of which 30 are left.
    assert [len(call.args[1]) for call in spy.call_args_list] == [
        30 + len(" we s"),
        30 + len(" we sx"),
    ]


@pytest.mark.parametrize("space", [" ", "\t", "\u00a0", "\u3000"])
def test_a_long_text_is_cut_at_any_white_space(space: str) -> None:
    # 2704 characters: the block before the last begins at 1024, in the middle of a word, so that
    # what is read begins at 1026.
    text = f"go{space}" * 900 + "appl"

    assert split_at_cursor(text) == ([["go"] * 558], "appl")


def test_of_a_list_with_one_word_a_line_the_end_is_read() -> None:
    sentences, begun = split_at_cursor("go\n" * 900 + "appl")

    assert sentences == [*[["go"]] * 558, []]
    assert begun == "appl"


def test_a_long_text_without_white_space_is_cut_where_its_block_begins() -> None:
    # Of 2409 characters 1385 are read, the first 1376 of them being 688 words and their commas.
    sentences, begun = split_at_cursor("a," * 1200 + " and begu")

    assert sentences == [[*["a"] * 688, "and"]]
    assert begun == "begu"


def test_one_graph_serves_many_texts_at_once(graph: NextWordGraph, vocabulary: Vocabulary) -> None:
    first, second = NextWords(graph, vocabulary), NextWords(graph, vocabulary)
    alone = words_of(NextWords(graph, vocabulary), "we go ")

    first.suggest("we ")
    second.suggest("you see the ")

    assert words_of(first, "we go ") == alone


def test_typing_with_it_saves_the_keys_that_the_metric_counts(
    graph: NextWordGraph, vocabulary: Vocabulary, parameters: FlatVector
) -> None:
    network = build_network(SETTINGS)
    load_parameters(network, schema_of(SETTINGS), torch.from_numpy(parameters.copy()))
    sentences = [["we", "see", "the", "sea"], ["going", "then", "you", "can't", "see", "them"]]

    counted = keystroke_savings(network, vocabulary, [sentences])

    keyboard, text, keys = NextWords(graph, vocabulary), "", 0
    for sentence in sentences:
        for word in sentence:
            shown = [word in words_of(keyboard, text + word[:n]) for n in range(len(word))]
            keys += shown.index(True) + 1 if True in shown else len(word) + 1
            text += word + " "
        text = text.rstrip() + "\n"
    assert keys == counted.keys_with
    assert keys < counted.keys_without


def test_wrong_settings_are_refused(graph: NextWordGraph, vocabulary: Vocabulary) -> None:
    with pytest.raises(ValueError, match="slot_count must be >= 1, got 0"):
        NextWords(graph, vocabulary, slot_count=0)
    with pytest.raises(ValueError, match="must have the graph's 19 words, got 5"):
        NextWords(graph, vocabulary.cut(5))


@pytest.mark.parametrize(
    ("count", "begin"),
    # A context of 8: up to 8 tokens fit, then all but so many times 4 that at most 8 are left.
    [(0, 0), (8, 0), (9, 4), (12, 4), (13, 8), (16, 8), (17, 12)],
)
def test_a_limited_context_moves_by_halves(count: int, begin: int) -> None:
    tokens = list(range(count))

    assert in_context(tokens, 8) == tokens[begin:]
    assert in_context(tokens, None) == tokens
    assert in_context(tokens, 1) == tokens[-1:]


def test_a_model_with_a_limited_context_follows_a_long_text(vocabulary: Vocabulary) -> None:
    settings = TransformerLmSettings(
        vocabulary_size=len(WORDS),
        model_size=4,
        head_count=2,
        layer_count=1,
        feedforward_size=8,
        context_size=8,
    )
    tensors = named_tensors(schema_of(settings), random_parameters(settings))
    graph = CountingGraph(exporter_for(settings).build(tensors).SerializeToString())
    keyboard = NextWords(graph, vocabulary)
    words = ["the", "sea", "and", "you", "see", "a", "sea", "then", "we", "go", "and", "i", "see"]

    for count in range(len(words) + 1):
        keyboard.suggest("".join(f"{word} " for word in words[:count]))

    # <eos> and 7 words are read one by one; the 8th makes 9 tokens, of which the last 5 are read
    # anew; then 3 more one by one, and the 12th makes 13, of which again the last 5.
    read = [1, *vocabulary.encode(words)]
    single = [[token] for token in read]
    assert graph.reads == [*single[:8], read[4:9], *single[9:12], read[8:13], *single[13:]]
    fresh = graph.step(np.array([read[8:14]]), graph.fresh_state(), k=3)
    followed = keyboard.suggest("".join(f"{word} " for word in words))
    assert math.isclose(
        followed[0].probability,
        max(math.exp(fresh.distribution[0, row]) for row in range(2, len(WORDS))),
        rel_tol=1e-4,
    )
