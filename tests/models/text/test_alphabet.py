import pytest

from models.text.alphabet import ALPHABET, UNKNOWN, decode_characters, encode_characters


def test_the_alphabet_is_the_hundred_printable_characters() -> None:
    assert len(set(ALPHABET)) == 100
    assert all(ord(character) < 128 for character in ALPHABET)


def test_what_is_encoded_is_decoded() -> None:
    text = "To be, or not to be:\nthat is the question?"

    assert decode_characters(encode_characters(text)) == text
    assert encode_characters("09aZ") == [0, 9, 10, 61]


def test_a_character_outside_the_alphabet_is_unknown_and_the_rest_stays() -> None:
    assert encode_characters("a\u00e9b") == [10, UNKNOWN, 11]
    assert decode_characters([UNKNOWN]) == "\v"


@pytest.mark.parametrize("number", [-1, 100])
def test_a_number_outside_the_alphabet_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=rf"in \[0, 100\), got {number}"):
        decode_characters([1, number])
