"""A person's words are counted, fade, and are known to have been typed twice."""

from itertools import product

from export.runtime.personal_cache import TYPED_TWICE_WORDS, PersonalCache


def test_a_cache_of_before_knows_what_it_had_settled() -> None:
    cache = PersonalCache.from_bytes(b'{"weights": {"teh": 1.9, "hte": 1.0}}')

    assert cache.was_typed_twice("teh")
    assert not cache.was_typed_twice("hte")


def test_a_forgotten_word_may_be_corrected_again() -> None:
    cache = PersonalCache()
    cache.insist("teh")
    cache.forget("Teh")

    assert not cache.was_typed_twice("teh")


def test_of_words_typed_twice_the_oldest_are_forgotten() -> None:
    cache = PersonalCache(largest_words=2)
    words = ["".join(letters) for letters in product("abcdefghijkl", repeat=4)]
    for word in words[:TYPED_TWICE_WORDS]:
        cache.insist(word)
    cache.insist(words[0])  # typed again, it is the newest
    cache.insist("newest")

    assert not cache.was_typed_twice(words[1])
    assert all(cache.was_typed_twice(word) for word in (words[0], words[2], "newest"))
    assert PersonalCache.from_bytes(cache.to_bytes()).to_bytes() == cache.to_bytes()
