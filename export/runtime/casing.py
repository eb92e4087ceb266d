"""Write a suggested word as the person who types would: words of a list are lower-case.

A word that was begun keeps the case of its beginning; a word that begins a sentence gets a capital,
unless the person began it without one; English I is a capital.
"""

from collections.abc import Sequence

_ENGLISH = "en"
_UPRIGHT = ("i", "i'm", "i'll", "i've", "i'd")


def cased(word: str, begun: str, *, begins_sentence: bool, languages: Sequence[str]) -> str:
    """Return a lower-case suggestion in the case in which it is to be shown.

    Args:
        begun: The letters typed so far, as typed; may be empty.
        begins_sentence: Whether it is the first word of a sentence.
        languages: BCP 47 tags of the word list.
    """
    letters = [letter for letter in begun if letter.isalpha()]
    if len(letters) > 1 and all(letter.isupper() for letter in letters):
        return word.upper()
    begins_large = letters[0].isupper() if letters else begins_sentence
    is_upright = word in _UPRIGHT and any(_is_english(language) for language in languages)
    return word[:1].title() + word[1:] if begins_large or is_upright else word


def _is_english(language: str) -> bool:
    return language.partition("-")[0].lower() == _ENGLISH
