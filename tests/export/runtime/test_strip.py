from collections.abc import Sequence
from pathlib import Path

import pytest

from export.runtime.casing import cased
from export.runtime.next_word import NextWords
from export.runtime.personal_cache import CacheError, PersonalCache
from export.runtime.personal_ranking import PersonalRanking
from export.runtime.strip import Keyboard, Slot, Strip, fill_strip, read_blocklist, typed_word
from export.runtime.word_graph import NextWordGraph
from export.runtime.word_index import WordIndex
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector
from tests.export.runtime.test_next_word import biased


@pytest.fixture(scope="module")
def favouring(parameters: FlatVector) -> NextWordGraph:
    """A graph that always expects go, then see, seen, seeing, sea, a."""
    return biased(parameters, ["go", "see", "seen", "seeing", "sea", "a"])


def texts(strip: Strip) -> tuple[str | None, ...]:
    return tuple(
        None if slot is None else slot.text for slot in (strip.left, strip.centre, strip.right)
    )


@pytest.mark.parametrize(
    ("word", "begun", "begins_sentence", "languages", "shown"),
    [
        ("the", "", False, (), "the"),
        ("the", "", True, (), "The"),
        ("the", "t", True, (), "the"),  # the person wrote it small
        ("the", "T", False, (), "The"),
        ("the", "TH", False, (), "THE"),
        ("can't", "Ca", False, (), "Can't"),
        ("i", "", False, ("en",), "I"),
        ("i'm", "i", False, ("en-GB",), "I'm"),
        ("i", "", False, ("de", "fr"), "i"),
        ("in", "", False, ("en",), "in"),
        ("été", "É", False, ("fr",), "Été"),
        ("не", "НЕ", False, ("ru",), "НЕ"),
        ("ǆep", "Ǆ", False, ("hr",), "ǅep"),
    ],
)
def test_a_word_is_cased_as_its_beginning(
    *, word: str, begun: str, begins_sentence: bool, languages: Sequence[str], shown: str
) -> None:
    assert cased(word, begun, begins_sentence=begins_sentence, languages=languages) == shown


@pytest.mark.parametrize(
    ("words", "typed", "places"),
    [
        (["one", "two", "three", "four"], "", ("two", "one", "three")),
        (["one", "two"], "", ("two", "one", None)),
        (["one"], "", (None, "one", None)),
        ([], "", (None, None, None)),
        (["one", "two", "three"], "o", ("two", "one", "three")),
        (["one", "two"], "o", ("o", "one", "two")),
        (["one"], "o", ("o", "one", None)),
        (["one"], "one", ("one", None, None)),
        (["one", "two", "three", "four"], "two", ("three", "one", "four")),
        ([], "zxq", ("zxq", None, None)),
    ],
)
def test_the_best_word_is_in_the_centre_and_what_is_typed_takes_free_room(
    words: list[str], typed: str, places: tuple[str | None, ...]
) -> None:
    strip = fill_strip(words, typed)

    assert texts(strip) == places
    kinds = {slot.text: slot.kind for slot in (strip.left, strip.centre, strip.right) if slot}
    assert {text for text, kind in kinds.items() if kind == "verbatim"} == {typed} & kinds.keys()


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("", ""),
        ("see Ca", "Ca"),
        ("see ", ""),
        ("cafe\u0301", "café"),
        ("don’t", "don’t"),
        ("a-b", "b"),
    ],
)
def test_what_is_typed_is_kept_as_it_was(text: str, typed: str) -> None:
    assert typed_word(text) == typed


def test_the_strip_shows_words_in_the_person_s_case(
    favouring: NextWordGraph, vocabulary: Vocabulary
) -> None:
    keyboard = Keyboard(favouring, vocabulary, languages=["en"])

    assert texts(keyboard.suggest("")) == ("See", "Go", "Seen")
    assert texts(keyboard.suggest("we ")) == ("see", "go", "seen")
    assert texts(keyboard.suggest("we SE")) == ("SEEN", "SEE", "SEEING")
    assert texts(keyboard.suggest("Zqxv")) == ("Zqxv", None, None)
    assert keyboard.suggest("Zqxv").left == Slot("Zqxv", "verbatim")
    assert texts(keyboard.suggest("I 12")) == (None, None, None)


def test_blocked_words_are_neither_shown_nor_learnt(
    favouring: NextWordGraph, vocabulary: Vocabulary
) -> None:
    cache = PersonalCache()
    keyboard = Keyboard(favouring, vocabulary, cache=cache, blocked=["go", "seen", "damn"])

    keyboard.learn("go damn go damn seen")

    assert len(cache) == 0
    assert texts(keyboard.suggest("we ")) == ("seeing", "see", "sea")
    assert texts(keyboard.suggest("we dam")) == ("dam", None, None)


def test_words_of_the_language_s_list_are_blocked_unless_the_person_says_otherwise(
    parameters: FlatVector, vocabulary: Vocabulary
) -> None:
    words = tuple("shit" if word == "go" else word for word in vocabulary.words)
    graph = biased(parameters, ["go", "see", "seen", "seeing"])  # "go" has its row

    def shown(languages: Sequence[str], blocked: Sequence[str] | None = None) -> str | None:
        cache = PersonalCache()
        keyboard = Keyboard(
            graph, Vocabulary(words), languages=languages, blocked=blocked, cache=cache
        )
        keyboard.learn("shit")
        centre = keyboard.suggest("we ").centre
        assert ("shit" in dict(cache.words())) == (centre is not None and centre.text == "shit")
        return None if centre is None else centre.text

    assert shown(["en-GB"]) == "see"
    assert shown(["en"], blocked=()) == "shit"
    assert shown(["en"], blocked=("see",)) == "shit"
    assert shown([]) == "shit"


def test_blocking_every_word_is_refused(favouring: NextWordGraph, vocabulary: Vocabulary) -> None:
    Keyboard(favouring, vocabulary, blocked=vocabulary.words[:-1])
    with pytest.raises(ValueError, match="must leave a word to suggest, but all 17 of the word"):
        Keyboard(favouring, vocabulary, blocked=vocabulary.words)


def test_nothing_is_learnt_incognito(favouring: NextWordGraph, vocabulary: Vocabulary) -> None:
    cache = PersonalCache()
    keyboard = Keyboard(favouring, vocabulary, cache=cache)

    keyboard.learn("sotto sotto", incognito=True)
    assert len(cache) == 0
    keyboard.learn("sotto sotto")
    assert texts(keyboard.suggest("we sot")) == ("sot", "sotto", None)


def test_the_mixture_is_the_formula_s(favouring: NextWordGraph, vocabulary: Vocabulary) -> None:
    # p = (1 - l) p_model + l p_cache; half of what the person typed is "you", half "sotto".
    cache = PersonalCache(half_life_words=10**9)
    cache.learn("you sotto " * 200)
    index = WordIndex(vocabulary)
    ranking = PersonalRanking(vocabulary, index, cache=cache, cache_share=0.25)
    reading = NextWords(favouring, vocabulary).read("we ")
    assert reading is not None

    found = {one.word: one.probability for one in ranking.rank(reading, count=4)}

    # The model gives "go" all but e^-50 of the probability; after 400 words l is half of 0.25.
    assert found["go"] == pytest.approx(0.875)
    assert found["you"] == pytest.approx(0.0625)
    assert found["sotto"] == pytest.approx(0.0625)


def test_what_a_person_typed_counts_more_the_more_it_is(
    favouring: NextWordGraph, vocabulary: Vocabulary
) -> None:
    cache = PersonalCache(half_life_words=10**9)
    ranking = PersonalRanking(vocabulary, WordIndex(vocabulary), cache=cache, cache_share=0.8)
    shares = [ranking.own_share("you")]

    for count in (100, 300, 1200):
        cache.learn("you " * count)
        shares.append(ranking.own_share("you"))

    # l is 0.8 n / (n + 400) after n = 0, 100, 400 and 1,600 words, all of them "you".
    assert shares == pytest.approx([0.0, 0.16, 0.4, 0.64], rel=1e-4)


def test_a_word_outside_the_list_is_suggested_once_it_was_typed_twice() -> None:
    cache = PersonalCache()

    cache.learn("sotto")
    assert not cache.is_settled("sotto")
    cache.learn("sotto")
    assert cache.is_settled("sotto")


def test_old_words_fade_and_the_least_counted_go_first() -> None:
    # After one half-life a word counts half: 1 against 1/2.
    cache = PersonalCache(half_life_words=1, largest_words=2)

    cache.learn("old new")
    assert cache.share("new") == pytest.approx(2 / 3)
    cache.learn("newer")
    assert dict(cache.words()).keys() == {"new", "newer"}
    assert cache.share("newer") == pytest.approx(2 / 3)


def test_counts_stay_finite_over_a_long_life() -> None:
    cache = PersonalCache(half_life_words=1)

    cache.learn("a b " * 2_000)

    # b is the last word: its weight is twice that of the a before it.
    assert cache.share("b") == pytest.approx(2 / 3)


def test_numbers_and_addresses_are_not_kept_and_words_can_be_forgotten() -> None:
    cache = PersonalCache()
    cache.learn("call 555-1234 or me@home.org now now")
    assert dict(cache.words()).keys() == {"call", "or", "now"}

    cache.forget("now")

    assert cache.share("now") == 0
    assert cache.share("call") == pytest.approx(0.5, rel=1e-2)


def test_a_cache_is_kept_and_read_back() -> None:
    cache = PersonalCache()
    cache.learn("we see the sea see")

    again = PersonalCache.from_bytes(cache.to_bytes())

    assert dict(again.words()) == pytest.approx(dict(cache.words()))
    for wrong in (b"", b"{", b'{"weights": {"a": -1}}', b'{"weights": {"a": "b"}}', b'{"x": 1}'):
        with pytest.raises(CacheError):
            PersonalCache.from_bytes(wrong)


def test_a_blocklist_is_one_word_a_line(tmp_path: Path) -> None:
    path = tmp_path / "blocklist.txt"
    path.write_text("Damn\n# a comment\n\ncafe\u0301  # with an accent\n")
    assert read_blocklist(path) == {"damn", "café"}

    path.write_text("one\ntwo words\n")
    with pytest.raises(ValueError, match=r"line 2 of .* must be one word"):
        read_blocklist(path)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_out_of_range_is_refused(
    favouring: NextWordGraph, vocabulary: Vocabulary, share: float
) -> None:
    with pytest.raises(ValueError, match="cache_share must be in"):
        Keyboard(favouring, vocabulary, cache_share=share)
