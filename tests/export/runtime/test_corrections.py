"""A slip is mended by what the text before it makes likely, and never against the person."""

import functools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export.runtime.personal_cache import PersonalCache
from export.runtime.slips import (
    DOUBLED,
    DROPPED,
    EXTRA,
    MARK,
    MOST,
    NEIGHBOUR,
    SWAPPED,
    WRONG,
    Layout,
)
from export.runtime.strip import Keyboard, Slot, Strip
from export.runtime.word_graph import NextWordGraph
from export.runtime.word_tree import WordTree
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector
from tests.export.runtime.test_next_word import biased


@pytest.fixture(scope="module")
def graph(parameters: FlatVector) -> NextWordGraph:
    """A graph that expects the, then see, don't, café, going, you, go: each e^50 less."""
    return biased(parameters, ["the", "see", "don't", "café", "going", "you", "go"])


@pytest.fixture
def keyboard(graph: NextWordGraph, vocabulary: Vocabulary) -> Keyboard:
    return Keyboard(graph, vocabulary, languages=["en"])


def mended(strip: Strip) -> str | None:
    """Return what a blank takes instead of what is typed."""
    is_mended = strip.centre is not None and strip.centre.kind == "correction"
    return strip.centre.text if is_mended and strip.centre else None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("teh", "the"),  # swapped
        ("tje", "the"),  # j lies beside h
        ("seee", "see"),  # twice
        ("goig", "going"),  # left out
        ("goin", "going"),  # the last one left out
        ("dont", "don't"),
        ("cafe", "café"),
        ("gonig", "going"),
        ("hoinf", "going"),  # h and f lie beside g
        ("Yiu", "You"),
    ],
)
def test_a_blank_takes_the_word_that_was_meant_and_what_is_typed_stays_one_tap_away(
    keyboard: Keyboard, typed: str, meant: str
) -> None:
    strip = keyboard.suggest(typed)

    assert strip.centre == Slot(meant, "correction")
    assert strip.left == Slot(typed, "verbatim")


def test_a_word_and_letters_that_mean_nothing_stay(keyboard: Keyboard) -> None:
    for typed in ("the", "zzxq", "x", "12", "a" * 100_000):
        assert mended(keyboard.suggest(f"we {typed}")) is None, typed[:9]


def test_a_missing_blank_is_offered_and_left_to_a_tap(keyboard: Keyboard) -> None:
    strip = keyboard.suggest("we seethe")

    assert strip.centre == Slot("see the")


def test_a_known_word_stays_unless_another_is_much_likelier(
    parameters: FlatVector, vocabulary: Vocabulary
) -> None:
    # "see" and "seen" are one letter apart, which costs 4.9 nats, and here e^50 apart.
    likely = Keyboard(biased(parameters, ["seen", "see"]), vocabulary)
    assert mended(likely.suggest("we see")) == "seen"
    # Where both are as likely, nothing speaks against what is typed.
    alike = Keyboard(biased(parameters, []), vocabulary)
    assert mended(alike.suggest("we see")) is None


def test_a_correction_taken_back_is_not_repeated_here_or_later(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    cache = PersonalCache()
    keyboard = Keyboard(graph, vocabulary, cache=cache)
    assert mended(keyboard.suggest("we teh")) == "the"

    keyboard.keep("Teh")

    assert mended(keyboard.suggest("we teh")) is None
    cache.learn("other words " * 200)  # a word insisted on stays so, long after it has faded
    later = Keyboard(graph, vocabulary, cache=PersonalCache.from_bytes(cache.to_bytes()))
    assert mended(later.suggest("we teh")) is None


def test_what_is_taken_back_incognito_is_kept_for_this_text_alone(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    cache = PersonalCache()
    keyboard = Keyboard(graph, vocabulary, cache=cache)

    keyboard.keep("teh", incognito=True)

    assert mended(keyboard.suggest("we teh")) is None
    assert len(cache) == 0
    assert mended(Keyboard(graph, vocabulary, cache=cache).suggest("we teh")) == "the"


def test_what_was_typed_twice_is_not_corrected_however_long_ago(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    cache = PersonalCache(half_life_words=10)
    keyboard = Keyboard(graph, vocabulary, cache=cache)

    cache.learn("teh " + "you see " * 50)
    assert mended(keyboard.suggest("we teh")) == "the"
    cache.learn("teh")
    cache.learn("you see " * 50)

    assert not cache.is_settled("teh")
    assert mended(keyboard.suggest("we teh")) is None


def test_what_stands_in_the_text_already_is_not_corrected(keyboard: Keyboard) -> None:
    assert mended(keyboard.suggest("we teh")) == "the"
    assert mended(keyboard.suggest("Teh. So we teh")) is None


def test_a_blocked_word_is_no_correction_and_is_not_corrected(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    keyboard = Keyboard(graph, vocabulary, blocked=["the", "tje", "going"])

    for text in ("we teh", "we hte", "we seethe", "we goign", "we goin"):
        shown = [slot.text for slot in vars(keyboard.suggest(text)).values() if slot]
        assert not {"the", "see the", "going"} & set(shown), text
    assert mended(keyboard.suggest("we tje")) is None


def test_where_hardly_a_word_may_be_shown_a_slip_is_kept(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    keyboard = Keyboard(graph, vocabulary, blocked=vocabulary.words[2:-1])

    assert keyboard.suggest("we teh") == Strip(Slot("teh", "verbatim"), None, None)
    assert keyboard.suggest("we seethe") == Strip(Slot("seethe", "verbatim"), None, None)


def test_a_capital_that_no_sentence_asks_for_is_meant(keyboard: Keyboard) -> None:
    assert mended(keyboard.suggest("Teh")) == "The"
    for text in ("we Teh", "we TEH", "tEh", "TEh"):
        assert mended(keyboard.suggest(text)) is None, text


def test_the_person_s_own_words_are_meant_too(graph: NextWordGraph, vocabulary: Vocabulary) -> None:
    cache = PersonalCache()
    keyboard = Keyboard(graph, vocabulary, cache=cache)
    assert mended(keyboard.suggest("we aardvrak")) is None

    keyboard.learn("aardvark aardvark")

    assert mended(keyboard.suggest("we aardvrak")) == "aardvark"


def test_a_word_typed_once_is_offered_and_left_to_a_tap(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    keyboard = Keyboard(graph, vocabulary, cache=PersonalCache())

    keyboard.learn("aardvark")

    assert keyboard.suggest("we aardvrak").centre == Slot("aardvark")
    assert keyboard.suggest("we aard") == Strip(Slot("aard", "verbatim"), None, None)


def test_words_that_the_list_lacks_are_completed_and_mended_where_their_language_ships(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    assert "restaurant" not in vocabulary
    english = Keyboard(graph, vocabulary, languages=["en-GB"])
    french = Keyboard(graph, vocabulary, languages=["fr"])

    assert mended(english.suggest("we restaurnt")) == "restaurant"
    assert english.suggest("we restaur").centre == Slot("restaurant")
    assert french.suggest("we restaurnt") == Strip(Slot("restaurnt", "verbatim"), None, None)


def test_a_blocked_word_that_the_list_lacks_is_neither_completed_nor_meant(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    keyboard = Keyboard(graph, vocabulary, languages=["en"], blocked=["restaurant"])

    for text in ("we restaurnt", "we restaur"):
        shown = [slot.text for slot in vars(keyboard.suggest(text)).values() if slot]
        assert "restaurant" not in shown, text
    assert keyboard.suggest("we restaur").centre == Slot("restaurants")


def test_no_letter_means_an_emoji(parameters: FlatVector, vocabulary: Vocabulary) -> None:
    words = ["👍" if word == "the" else word for word in vocabulary.words]
    keyboard = Keyboard(biased(parameters, ["the", "see"]), Vocabulary(tuple(words)))

    for text in ("we x", "we s", "we é"):
        shown = [slot.text for slot in vars(keyboard.suggest(text)).values() if slot]
        assert "👍" not in shown, text


def test_a_word_of_the_language_is_spared_though_the_list_lacks_it(
    parameters: FlatVector, vocabulary: Vocabulary
) -> None:
    alike = biased(parameters, [])

    # Where nobody knows the word, its m is one too many.
    assert mended(Keyboard(alike, vocabulary, languages=["fr"]).suggest("we seem")) == "see"
    assert mended(Keyboard(alike, vocabulary, languages=["en"]).suggest("we seem")) is None


def test_what_is_typed_is_no_suggestion(keyboard: Keyboard) -> None:
    for text in ("we see", "See", "we going"):
        shown = vars(keyboard.suggest(text)).values()
        typed = text.split()[-1]
        assert typed not in [slot.text for slot in shown if slot and slot.kind == "word"], text


def test_a_begun_word_is_completed_past_its_slip(
    graph: NextWordGraph, vocabulary: Vocabulary
) -> None:
    cache = PersonalCache()
    cache.learn("aardvark aardvark")
    keyboard = Keyboard(graph, vocabulary, cache=cache)

    strip = keyboard.suggest("we aarsv")

    assert strip.centre == Slot("aardvark")  # a blank keeps what is typed: the word is not ended


@pytest.mark.parametrize("twice", ["insist", "learn"])
def test_what_was_typed_twice_is_not_corrected_once_its_count_made_room_for_others(
    graph: NextWordGraph, vocabulary: Vocabulary, twice: str
) -> None:
    cache = PersonalCache(largest_words=2, half_life_words=1)
    cache.insist("teh") if twice == "insist" else cache.learn("teh teh")
    cache.learn("you see the")
    assert cache.share("teh") == 0

    cache = PersonalCache.from_bytes(cache.to_bytes())

    assert mended(Keyboard(graph, vocabulary, cache=cache).suggest("we teh")) is None


@pytest.mark.parametrize(
    ("languages", "meant", "typed", "cost"),
    [
        (["en"], "h", "j", NEIGHBOUR),
        (["en"], "z", "u", WRONG),
        (["de-CH"], "z", "u", NEIGHBOUR),
        (["fr"], "a", "z", NEIGHBOUR),
        (["ru"], "й", "ц", NEIGHBOUR),
        (["en"], "é", "e", MARK),
        (["en"], "a", "@", WRONG),
    ],
)
def test_neighbours_lie_side_by_side_on_the_language_s_keys(
    languages: Sequence[str], meant: str, typed: str, cost: float
) -> None:
    assert Layout(languages).replaced(meant, typed) == cost


@given(st.lists(st.text("ab'", min_size=1, max_size=6)), st.text("ab'", min_size=1, max_size=6))
@settings(deadline=None)
def test_every_word_costs_its_cheapest_slips(words: list[str], typed: str) -> None:
    layout = Layout(["en"])
    tree = WordTree(sorted(set(words)))

    found = {
        tree.words[one.node.first]: one.cost
        for one in tree.reach(typed, layout)
        if tree.ends(one.node)
    }

    expected = {word: _cheapest(word, typed, layout) for word in words}
    assert found == {word: cost for word, cost in expected.items() if cost <= MOST}


def _cheapest(word: str, typed: str, layout: Layout) -> float:
    """Return the cost of typing a word so, by trying all slips one after another."""

    @functools.cache
    def rest(w: int, t: int, left: int) -> float:
        if t == len(typed):
            return 0.0 if w == len(word) else math.inf
        letter, after = typed[t], left - 1
        ways = []
        if word[w : w + 1] == letter:
            ways.append(rest(w + 1, t + 1, left))
        if word[w : w + 2] == f"'{letter}":
            ways.append(MARK + rest(w + 2, t + 1, left))
        if left:
            is_double = t > 0 and typed[t - 1] == letter
            ways.append((DOUBLED if is_double else EXTRA) + rest(w, t + 1, after))
            if w < len(word) and word[w] != letter:
                ways.append(layout.replaced(word[w], letter) + rest(w + 1, t + 1, after))
                if word[w + 1 : w + 2] == letter:
                    ways.append(DROPPED + rest(w + 2, t + 1, after))
                    if typed[t + 1 : t + 2] == word[w]:
                        ways.append(SWAPPED + rest(w + 2, t + 2, after))
        return min(ways, default=math.inf)

    return rest(0, 0, 1 + (len(typed) > 3))
