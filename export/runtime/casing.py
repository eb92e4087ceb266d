"""Write a suggested word as the person who types would.

A word that was begun large stays so; a word that begins a sentence gets a capital, unless the
person began it without one; capitals of the list's own stay, as German has them; English I is a
capital; the Turkish i keeps its dot.
"""

from collections.abc import Sequence

_ENGLISH = "en"
_DOTTED = frozenset({"az", "tr"})
_UPRIGHT = ("i", "i'm", "i'll", "i've", "i'd")


def cased(word: str, begun: str, *, begins_sentence: bool, languages: Sequence[str]) -> str:
    """Return a suggestion, written as its list does, in the case in which it is to be shown.

    Args:
        begun: The letters typed so far, as typed; may be empty.
        begins_sentence: Whether it is the first word of a sentence.
        languages: BCP 47 tags of the word list.
    """
    letters = [letter for letter in begun if letter.isalpha()]
    own = {language.partition("-")[0].lower() for language in languages}
    if len(letters) > 1 and all(letter.isupper() for letter in letters):
        return (word.replace("i", "İ") if own & _DOTTED else word).upper()
    begins_large = letters[0].isupper() if letters else begins_sentence
    if begins_large or (word in _UPRIGHT and _ENGLISH in own):
        first = "İ" if word[:1] == "i" and own & _DOTTED else word[:1].title()
        return first + word[1:]
    return word
