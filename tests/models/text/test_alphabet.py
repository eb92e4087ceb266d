from models.text.alphabet import ALPHABET, UNKNOWN, encode_characters


def test_the_alphabet_is_the_hundred_printable_characters() -> None:
    assert len(set(ALPHABET)) == 100
    assert all(ord(character) < 128 for character in ALPHABET)


def test_what_is_encoded_can_be_read_back() -> None:
    text = "To be, or not to be:\nthat is the question?"

    assert "".join(ALPHABET[number] for number in encode_characters(text)) == text
    assert encode_characters("09aZ") == [0, 9, 10, 61]


def test_a_character_outside_the_alphabet_is_unknown_and_the_rest_stays() -> None:
    assert encode_characters("a\u00e9b") == [10, UNKNOWN, 11]
    assert ALPHABET[UNKNOWN] == "\v"
