"""The page reads text, and writes words, exactly as the library does."""

import itertools
import random
import unicodedata

from export.runtime.casing import cased
from export.runtime.next_word import in_context, split_at_cursor
from export.runtime.strip import Strip, fill_strip, typed_word
from models.text.words import split_sentences
from tests.export.page.node import ask_page

TEXTS = (
    "",
    " ",
    "I don’t know. Do you? NO!",
    "wait... what?! ok…yes",
    "mail me: ann.b+c@example.co.uk now.",
    "see https://example.org/a_(b)?q=1. Then www.x.y/z, or example.com/path or file.txt",
    "/usr/bin/env ~/x ../y a/b and/or",
    "at 12:30 on 3rd of 2024-05-06, 4ever 1,000.50 u2 x1y2",
    "snake_case _private __init__ a_1 _",
    "<#> <email> <unk> <a b> < >",
    ":p :-D ;) =p x:p :'d",
    "O'Brien's 'quoted' rock'n'roll ''a'' it's' ’tis",
    "well-known e-mail re-",
    "line one\nline two\r\n\r\nline three",
    "é e\u0301 \u0130stanbul ΣΑΣ Straße ſıſ ıo.ſg x.ınfo ſ://a",
    "привет, как дела? 你好，世界。 नमस्ते مرحبا 한국어 ไทย",
    "½ ² Ⅷ ⅷa ٣ x٣ 三 ௧",
    "a\u00a0b\u2003c\u3000d\x1ce\x85f\ufeffg\u200bh",
    "👩‍👩‍👧 ok👍 a👍b \U00010400\U00010428",
    "see you th",
    "I'",
    "12",
    "a@",
    "a@b",
    "foo.co",
    "http:",
    "http://a",
    "x" * 300,
    "go " * 900 + "th",
    "a" * 2100,
    "😀 " * 1500 + "we s",
    "a" * 3000,
    "go\n" * 900 + "appl",
    "go\u00a0" * 900 + "appl",
    "go\x1c" * 900 + "appl",
    "a," * 1200 + " and begu",
    "我们看海。" * 300 + "我",
    "x" * 1200 + " " + "y" * 1200 + " we s",
    "cafe\u0301" + "\u0315\u0300" * 40 + "s",
    "a" + "\u0315\u0300" * 5000 + " we s",
    "नमस्ते दुनिया कै",
    "তুমি கேமரா కెమెరా ക്യാമറ",
    "שָׁלוֹם עוֹלָ",
    "مَرْحَبًا مرحـبا كيفَ",
    "می‌خواهم می‌خ",
    "สวัสดี ຂອບໃຈ ကျေးဇူး សួស្តី བཀྲ་ཤིས",
    "Il s’appelle L'HO",
    "İSTANBUL ısı",
    "👍🏽❤️ 🤷🏽‍♀️ 👩‍👩‍👧 ❤️‍🔥 ☺ ★ a👍b 😀",
    "n\u0304o p\u0308 z\u0337a\u0337l",
    "<" + "\u0301" * 40 + "> e" + "\u0301" * 40 + "😀" * 40,
)
_PIECES = (
    *"aZé'’ .!?…-_@/:<>~\n\t019½ſıİΣßǆ",
    *("www.", ".com", "://", "e\u0301", "<#>", ":p", "don't", "the ", "I ", "😀", "...", "你好"),
    *("\u0e35", "\u093f", "\u200d", "\ufe0f", "\u05b8ש", "İ", "♀", "👍", "l'"),
)


def mixed_texts() -> list[str]:
    """Return the texts above, and a thousand of pieces that mean something somewhere."""
    draw = random.Random(5)
    return [
        *TEXTS,
        *("".join(draw.choices(_PIECES, k=draw.randint(1, 12))) for _ in range(1000)),
    ]


def test_the_page_reads_texts_as_the_library_does() -> None:
    texts = mixed_texts()

    found = ask_page(sentences={"texts": texts}, cursors={"texts": texts}, typed={"texts": texts})

    for text, sentences in zip(texts, found["sentences"], strict=True):
        assert sentences == split_sentences(text), ascii(text)
    for text, at_cursor in zip(texts, found["cursors"], strict=True):
        assert tuple(at_cursor) == split_at_cursor(text), ascii(text)
    for text, typed in zip(texts, found["typed"], strict=True):
        assert typed == typed_word(text), ascii(text)


def test_the_page_too_puts_only_the_end_of_a_text_into_order() -> None:
    texts = ["a" + "\u0315\u0300" * 20_000 + " we s", "😀" * 20_000 + " we s"]

    handed = ask_page(normalised={"texts": texts})["normalised"]

    # Once to see whether a word is begun and once to split; 30 marks are left of 2000, and of
    # 1024 to 2047 emoji each, of two UTF-16 units.
    assert handed[0] == [30 + len(" we s"), 30 + len(" we sx")]
    assert max(handed[1]) <= 2 * 2047 + 1


def test_every_letter_counts_as_the_same_for_the_page_and_the_library() -> None:
    # Node may know letters that this Python does not; those of Python's are what is compared.
    codes = (*range(0x3400), *range(0x3400, 0x2FFFF, 37))
    letters = [chr(code) for code in codes if unicodedata.category(chr(code)) not in "CnCsCo"]
    texts = [
        " ".join(f"a{one}b" for one in letters[start : start + 500])
        for start in range(0, len(letters), 500)
    ]

    found = ask_page(sentences={"texts": texts})

    for text, sentences in zip(texts, found["sentences"], strict=True):
        assert sentences == split_sentences(text)


def test_words_are_cased_as_the_library_cases_them() -> None:
    old = unicodedata.ucd_3_2_0  # of newer letters Node and this Python may know different cases
    lower = [chr(code) for code in range(0x1FFFF) if old.category(chr(code)) == "Ll"]
    lower = [one for one in lower if one not in "ƛɤ"]  # these got their capitals in Unicode 16
    special = ["the", "i", "i'll", "straße", "ǆep", "ᾳδω", "აბ", "", "Haus", "iyi", "ısı", "👍"]
    words = [*special, *(f"{one}a" for one in lower)]
    begun = ("", "t", "T", "TH", "Th", "1", "É", "ǅ")
    cases = [
        *itertools.product(special, begun, (True, False), (["en-GB"], ["de"], ["tr"], [])),
        *((word, "", True, []) for word in words),
    ]

    found = ask_page(cased={"cases": cases})["cased"]

    for case, shown in zip(cases, found, strict=True):
        word, typed, begins, languages = case
        expected = cased(word, typed, begins_sentence=begins, languages=languages)
        assert shown == expected, ascii(case)


def test_a_context_is_cut_where_the_library_cuts_it() -> None:
    cases = [(list(range(count)), size) for count in range(40) for size in (None, 1, 2, 7, 8)]

    found = ask_page(contexts={"cases": cases})["contexts"]

    assert found == [in_context(tokens, size) for tokens, size in cases]


def test_words_get_the_same_places() -> None:
    words = ("the", "then", "them", "they")
    cases = [
        (words[:count], typed, is_mended)
        for count in range(5)
        for typed in ("", "th", "the", "them")
        for is_mended in (False, True)
    ]

    found = ask_page(strips={"cases": cases})["strips"]

    for (shown, typed, is_mended), strip in zip(cases, found, strict=True):
        assert strip == _as_json(fill_strip(shown, typed, is_mended=is_mended))


def _as_json(strip: Strip) -> dict[str, object]:
    return {
        name: None if slot is None else {"text": slot.text, "kind": slot.kind}
        for name, slot in vars(strip).items()
    }
