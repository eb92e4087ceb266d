import re
import sys
import unicodedata
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.speech_alphabet import (
    ALPHABET,
    SpeechTextSettings,
    encode_speech,
)
from models.text.spoken_numbers import MissingNum2wordsError
from models.text.spoken_text import SpeechTextError, prepare_speech

REFUSE = SpeechTextSettings()
DROP = SpeechTextSettings(unknown="drop")


def said(text: str) -> str:
    return prepare_speech(text, REFUSE).text.removeprefix(" ").removesuffix(".")


def test_the_papers_example_is_read_as_the_paper_reads_it() -> None:
    assert prepare_speech("I am 10 years old", REFUSE).text == " i am ten years old."


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("199 of 6,439", "one hundred ninety-nine of six thousand, four hundred thirty-nine"),
        ("3.14", "three point one four"),
        ("0.5", "zero point five"),
        ("version 3.11.7.", "version three point eleven point seven"),
        ("v2.0.1", "v two point zero point one"),
        ("1.0.0rc1", "one point zero point zero rc one"),
        ("007", "zero zero seven"),
        ("1234567890123456", "one two three four five six seven eight nine zero one two three "
         "four five six"),
        ("it was -5 outside", "it was minus five outside"),
        ("from 10-20", "from ten to twenty"),
        ("call 555-1234", "call five five five, one two three four"),
        ("#7", "number seven"),
        ("the B52", "the b fifty-two"),
        ("1st, 22nd and 103rd", "first, twenty-second and one hundred third"),
        ("1/2, 3/4 and 5/8", "one half, three quarters and five eighths"),
        ("2 1/2 km", "two and one half kilometers"),
        ("24/7", "twenty-four over seven"),
    ],
)  # fmt: skip
def test_numbers_are_said_in_words(written: str, spoken: str) -> None:
    assert said(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("$3.50", "three dollars and fifty cents"),
        ("$1.01", "one dollar and one cent"),
        ("£1", "one pound"),
        ("€0.99", "ninety-nine cents"),
        ("$0", "zero dollars"),
        ("$2.5 million", "two point five million dollars"),
        ("£5k", "five thousand pounds"),
        ("$1,000", "one thousand dollars"),
        ("US$5", "five u s dollars"),
        ("-C$1.50", "minus one canadian dollar and fifty cents"),
        ("A$2.5 million", "two point five million australian dollars"),
        ("costs$5", "costs five dollars"),
        ("USA$5", "usa five dollars"),
    ],
)
def test_money_is_said_with_its_unit_behind_it(written: str, spoken: str) -> None:
    assert said(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("in 1455 and 1803", "in fourteen fifty-five and eighteen oh three"),
        ("in 2005", "in two thousand five"),
        ("1,455 men", "one thousand, four hundred fifty-five men"),
        ("1861-1865", "eighteen sixty-one to eighteen sixty-five"),
        ("the 1990s and '80s", "the nineteen nineties and eighties"),
        ("2021-07-19", "july nineteenth, twenty twenty-one"),
        ("7/4/1976", "july fourth, nineteen seventy-six"),
        ("19/7/2021", "july nineteenth, twenty twenty-one"),
        ("12/25/20", "december twenty-fifth, twenty twenty"),
        ("7/4/76", "july fourth, nineteen seventy-six"),
        ("13/13/20", "thirteen slash thirteen slash twenty"),
        ("1/12/25/20", "one slash twelve slash twenty-five slash twenty"),
        ("On July 4th, 1776", "on july fourth, seventeen seventy-six"),
        ("Jan. 3", "january third"),
        ("14th June, 1800", "fourteenth june, eighteen hundred"),
        ("5 may follow", "five may follow"),
        ("10:05 p.m.", "ten oh five p m"),
        ("3:00", "three o'clock"),
        ("9am", "nine a m"),
        ("22:15:01", "twenty-two fifteen and one second"),
        ("3:30pm", "three thirty p m"),
        ("12:00 PM", "twelve p m"),
        ("3:30p.m. today", "three thirty p m today"),
        ("12.30pm", "twelve thirty p m"),
        ("at 7.30 a.m. We left", "at seven thirty a m. we left"),
        ("$7.30 a month", "seven dollars and thirty cents a month"),
        ("24:00", "twenty-four o'clock"),
        ("3:30-4:30pm", "three thirty to four thirty p m"),
        ("3.30-4.30 p.m.", "three thirty to four thirty p m"),
        ("9am-5pm", "nine a m to five p m"),
    ],
)
def test_dates_and_times_are_said_as_such(written: str, spoken: str) -> None:
    assert said(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("100%", "one hundred percent"),
        ("1 kg or 2 kg", "one kilogram or two kilograms"),
        ("-5°C", "minus five degrees celsius"),
        ("60 mph", "sixty miles per hour"),
        ("10 m²", "ten square meters"),
        ("2½ ft", "two and one half feet"),
        ("10-20 GB", "ten to twenty gigabytes"),
    ],
)
def test_measures_are_written_out(written: str, spoken: str) -> None:
    assert said(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Mr. Smith and Dr Who", "mister smith and doctor who"),
        ("St. Paul, Main St.", "saint paul, main street"),
        ("No. 5, vol. 2", "number five, volume two"),
        ("no. Never", "no. never"),
        ("dogs, cats, etc. We left", "dogs, cats, et cetera. we left"),
        ("The U.S.A. is", "the u s a is"),
        ("J. Smith", "j smith"),
        ("e.g. this", "for example this"),
        ("see www.sotto.org", "see www dot sotto dot org"),
        ("bread & butter @ home", "bread and butter at home"),
    ],
)
def test_abbreviations_and_symbols_are_written_out(written: str, spoken: str) -> None:
    assert said(written) == spoken


def test_every_text_ends_with_one_period_and_keeps_its_question() -> None:
    assert prepare_speech("is it?", REFUSE).text == " is it?."
    assert prepare_speech("  it is ... ", REFUSE).text == " it is."
    assert prepare_speech("well-known -- so (they say), 'tis", REFUSE).text == (
        " well-known, so, they say, 'tis."
    )


def test_replaced_characters_are_counted() -> None:
    spoken = prepare_speech("Caf\u00e9 cafe\u0301: \u201cna\u00efve\u201d", REFUSE)

    # A letter and its accent are one character, however they are stored.
    assert spoken.text == " cafe cafe: naive."
    assert spoken.replaced == {"\u00e9": 2, "\u201c": 1, "\u00ef": 1, "\u201d": 1}
    assert spoken.dropped == {}


def test_a_sign_without_a_reading_is_refused_or_dropped_and_counted() -> None:
    text = "Good \U0001f600 morning \U0001f600\u2192!"

    with pytest.raises(SpeechTextError, match=r'U\+2192 x 1, U\+1F600 x 2; .* unknown = "drop"'):
        prepare_speech(text, REFUSE)
    spoken = prepare_speech(text, DROP)

    assert spoken.text == " good morning!."
    assert spoken.dropped == {"\U0001f600": 2, "\u2192": 1}


@pytest.mark.parametrize("settings", [REFUSE, DROP])
@pytest.mark.parametrize(
    "text", ["ok \u041f\u0440\u0438", "\u0663 apples", "\u6f22\u5b57", "\u0e01\u0e34"]
)
def test_other_scripts_are_refused_always(text: str, settings: SpeechTextSettings) -> None:
    with pytest.raises(SpeechTextError, match=r"letters a to z, got U\+.*Latin letters first"):
        prepare_speech(text, settings)


@pytest.mark.parametrize(("text", "got"), [("", "empty"), (" \n", "empty"), ("...!", "signs")])
def test_nothing_to_say_is_refused(text: str, got: str) -> None:
    with pytest.raises(SpeechTextError, match=f"a word or a number to say, got .*{got}"):
        prepare_speech(text, REFUSE)


def test_emoji_alone_are_nothing_to_say_even_where_they_are_dropped() -> None:
    with pytest.raises(SpeechTextError, match="got only signs"):
        prepare_speech("\U0001f600\u2764\ufe0f", DROP)


def test_digits_alone_are_said() -> None:
    assert prepare_speech("12", REFUSE).text == " twelve."


# Signs and marks beside digits: what the rules of numbers, dates and money look at.
@given(st.text(alphabet=" 0123456789ap$£%:/-.,'smkgthMayJ\u00bd\u2014(\U0001f600", max_size=24))
def test_what_is_prepared_is_of_the_alphabet(text: str) -> None:
    try:
        spoken = prepare_speech(text, DROP).text
    except SpeechTextError:
        return

    assert set(spoken) <= set(ALPHABET)
    assert spoken.startswith(" ") and spoken.endswith(".") and "  " not in spoken
    assert not set("0123456789") & set(spoken)


@given(
    times=st.lists(
        st.tuples(
            st.integers(1, 12),
            st.sampled_from(":."),
            st.integers(0, 59),
            st.sampled_from(["am", "pm", " a.m.", " p.m.", "a.m.", "p.m.", " PM", " p m"]),
        ),
        min_size=1,
        max_size=2,
    ),
    joined=st.sampled_from(["-", " and ", ", "]),
    before=st.sampled_from(["", "at ", "5 ", "(", "-"]),
    after=st.sampled_from(["", " we left", ", then", ")", " 7"]),
)
def test_no_pause_parts_the_words_of_a_time(
    times: list[tuple[int, str, int, str]], joined: str, before: str, after: str
) -> None:
    written = joined.join(f"{hour}{mark}{minute:02}{half}" for hour, mark, minute, half in times)

    spoken = said(before + written + after)

    assert not re.search(r"[:.]| point | dot ", spoken)
    assert len(re.findall(r"\b[ap] m\b", spoken)) == len(times)


@given(
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    second=st.none() | st.integers(0, 59),
    after=st.sampled_from(["", ".", " today", "-23:00"]),
)
def test_no_pause_parts_the_words_of_a_time_of_24_hours(
    hour: int, minute: int, second: int | None, after: str
) -> None:
    seconds = "" if second is None else f":{second:02}"

    assert not re.search("[:.]", said(f"{hour}:{minute:02}{seconds}{after}"))


def test_numbers_start_at_one_and_padding_has_none() -> None:
    numbers = encode_speech(" ab.", REFUSE)

    # The blank is the first character, and padding has no character.
    assert numbers == [1, 1 + ALPHABET.index("a"), 1 + ALPHABET.index("b"), 1 + ALPHABET.index(".")]
    assert REFUSE.symbol_count == 36


def test_the_alphabet_travels_with_the_settings() -> None:
    settings = SpeechTextSettings(alphabet=" .abc")
    encoded = msgspec.json.encode(settings)

    assert b'"alphabet":" .abc"' in encoded
    assert msgspec.json.decode(encoded, type=SpeechTextSettings) == settings
    assert encode_speech(" c.", settings) == [1, 5, 2]
    assert ALPHABET.encode() in msgspec.json.encode(REFUSE)


def test_a_character_outside_the_alphabet_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got U\+0041; prepare it"):
        encode_speech(" A.", REFUSE)


@pytest.mark.parametrize(
    ("alphabet", "message"),
    [(" .aa", "each character once"), ("abc.", "lacks"), (" .A", "lower case")],
)
def test_an_alphabet_that_no_text_fits_is_refused(alphabet: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpeechTextSettings(alphabet=alphabet)


def test_no_pause_is_looked_for_from_every_blank_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    substitute, tried = re.sub, dict[str, str]()

    def spy(pattern: str, replacement: str, text: str) -> str:
        tried[pattern] = text
        return substitute(pattern, replacement, text)

    monkeypatch.setattr(re, "sub", spy)

    spoken = prepare_speech("so" + " '" * 2000 + "\U0001f600" * 2000 + "be it", DROP)

    assert spoken.text == " so be it."
    assert [text for pattern, text in tried.items() if pattern.startswith(r"\s*")] == ["so be it"]


def test_no_run_of_marks_is_put_into_order_that_is_longer_than_any_language_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spy = Mock(wraps=unicodedata.normalize)
    monkeypatch.setattr(unicodedata, "normalize", spy)

    spoken = prepare_speech("cafe" + "\u0301\u0315" * 2000, DROP)

    assert spoken.text == " cafe."
    assert max(len(call.args[1]) for call in spy.call_args_list) == len("cafe") + 30


def test_very_long_numbers_are_read_in_time() -> None:
    # A pattern that reads on to the end from every group of digits would take a minute.
    prepare_speech("111," * 10_000, DROP)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("{}th", "{} th"),
        ("{}/3", "{} slash three"),
        ("1/{}", "one slash {}"),
        ("${}", "{} dollars"),
    ],
)
def test_a_code_is_read_digit_by_digit_whatever_stands_beside_it(written: str, spoken: str) -> None:
    assert said(written.format("1" * 5000)) == spoken.format(" ".join(["one"] * 5000))


def test_without_num2words_only_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "num2words", None)

    assert said("ten") == "ten"
    with pytest.raises(MissingNum2wordsError, match=r"num2words is missing; .* sotto\[speech\]"):
        said("10")
