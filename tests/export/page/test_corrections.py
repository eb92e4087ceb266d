"""The page mends the same slips as the library."""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.page.described import described_rules
from export.runtime.personal_ranking import rankings
from export.runtime.slips import Layout
from export.runtime.strip import Keyboard
from export.runtime.word_graph import Prediction, State
from export.runtime.word_index import WordIndex
from export.runtime.word_tree import WordTree
from models.text.language_words import language_file
from models.text.vocabulary import Vocabulary, shipped_vocabulary
from tests.export.page.node import ask_page

LETTERS = "abcdefghijklmnopqrstuvwxyz'é"
LISTED = shipped_vocabulary(3000)
VOCABULARY = Vocabulary((*LISTED.words, "café", "été"))
OFFENSIVE = frozenset({"going", "tomorrow", "zut"})  # "zut" is not in the list
BLOCKED = frozenset({"going", "there", "breakfasts"})  # the list lacks the last one


class Constant:
    """A model that expects the same words wherever it is asked."""

    context_size: int | None = None

    def __init__(self, scores: NDArray[np.float32]) -> None:
        self._scores = scores
        self.vocabulary_size = len(scores)

    def fresh_state(self, batch_size: int = 1) -> State:
        return {}

    def step(self, tokens: NDArray[np.int64], state: State, *, k: int) -> Prediction:
        ranked = np.argsort(-self._scores, kind="stable")[:k]
        return Prediction(ranked[None], self._scores[ranked][None], self._scores[None], state)


def slipped(draw: random.Random, word: str) -> str:
    """Return a word with up to two letters changed, left out, put in or swapped."""
    letters = list(word)
    for _ in range(draw.randint(0, 2)):
        at = draw.randrange(len(letters) + 1)
        kind = draw.randrange(4)
        if kind == 0:
            letters[at : at + 1] = draw.choice(LETTERS)
        elif kind == 1:
            letters[at : at + 1] = []
        elif kind == 2:
            letters[at:at] = draw.choice(LETTERS)
        else:
            letters[at : at + 2] = letters[at : at + 2][::-1]
    return "".join(letters)


def test_the_page_reaches_the_same_words_at_the_same_cost() -> None:
    draw = random.Random(7)
    words = sorted(VOCABULARY.words[2:])
    typed = [slipped(draw, draw.choice(words)) for _ in range(300)]

    for languages in (["en"], ["fr"], ["de"], ["tr"], ["hr"]):
        found = ask_page(reached={"list": words, "languages": languages, "cases": typed})
        tree, layout = WordTree(words), Layout(languages)
        for one, reached in zip(typed, found["reached"], strict=True):
            expected = [
                [way.node.first, way.node.last, way.cost, way.left]
                for way in tree.reach(one, layout)
            ]
            assert reached == expected, one


def test_the_page_offers_the_same_corrections() -> None:
    draw = random.Random(11)
    noise = np.random.default_rng(11)
    index = WordIndex(VOCABULARY)
    free, _ = rankings(VOCABULARY, index, shipped=frozenset())
    blocked, allowing = rankings(VOCABULARY, index, shipped=OFFENSIVE, own=BLOCKED)
    likely = -np.log(np.arange(1, len(VOCABULARY) + 1) * 9.0)
    models = (likely + noise.normal(0, 2, (5, len(likely)))).astype(np.float32)
    models[:, 0] = -3, -4, -5, -6, -7
    cases, native = [], []
    for number in range(360):
        meant = sorted(OFFENSIVE | BLOCKED) if number % 9 == 0 else VOCABULARY.words[2:]
        word = slipped(draw, draw.choice(meant))
        shown = draw.choice([word, word, word.title(), word.upper()])
        joined = draw.choice(VOCABULARY.words[2:40]) + draw.choice(VOCABULARY.words[2:40])
        typed = joined if number % 10 == 0 else shown
        text = draw.choice(["", "we ", "See. ", f"{word}. So "]) + typed
        kept = [word] if number % 7 == 0 else []
        is_allowed = number % 2 == 0
        spared, opened = (blocked, allowing) if number % 3 == 0 else (free, free)
        model = Constant(models[number % 5])
        blocked_words = (opened if is_allowed else spared).blocked
        keyboard = Keyboard(model, VOCABULARY, languages=["en"], blocked=blocked_words, index=index)
        for one in kept:
            keyboard.keep(one, incognito=True)
        native.append(keyboard.suggest(text))
        rules = {**described_rules(spared, opened), "isAllowed": is_allowed}
        cases.append({"model": number % 5, "text": text, "kept": kept, **rules})

    asked: dict[str, Any] = {"list": VOCABULARY.words, "languages": ["en"], "cases": cases}
    asked |= {"models": models.tolist(), "files": [language_file("en").decode()]}
    found = ask_page(offers=asked)["offers"]

    for case, strip, expected in zip(cases, found, native, strict=True):
        places = {place: slot and vars(slot) for place, slot in vars(expected).items()}
        assert strip == places, case["text"]
    kinds = [slot.kind for strip in native for slot in vars(strip).values() if slot]
    assert kinds.count("correction") > 30


def test_the_page_suggests_the_same_in_other_languages() -> None:
    words = ("<unk>", "<eos>", "l'", "j'", "heure", "homme", "ai", "Haus", "Häuser", "groß", "👍")
    listed = Vocabulary((*words, "ılık", "iyi", "שלום", "weg", "Weg"))
    scores = -np.log(np.arange(2, len(listed) + 2, dtype=np.float32))
    texts = (
        *("je l'ho", "L’", "L'HO", "l'huree", "jai", "das ha", "das Häusr", "ein gross", "😀 ha"),
        *("我们", "see 明天", "สวัสดี", "ilık", "ILI", "iy", "שָׁלו", "a" * 100_000, "we", "👍 "),
    )
    cases, native = [], []
    for language in ("fr", "de", "tr"):
        keyboard = Keyboard(Constant(scores), listed, languages=[language], blocked=())
        native += [keyboard.suggest(text) for text in texts]
        cases.append({"list": listed.words, "languages": [language], "models": [scores.tolist()]})
        cases[-1]["files"] = []
        rules = {"never": [0, 1], "blocked": [], "offensive": [], "isAllowed": False}
        cases[-1]["cases"] = [{"model": 0, "text": text, "kept": [], **rules} for text in texts]

    found = [strip for case in cases for strip in ask_page(offers=case)["offers"]]

    for text, strip, expected in zip(texts * 3, found, native, strict=True):
        assert strip == {place: slot and vars(slot) for place, slot in vars(expected).items()}, text
    assert any(slot and slot.text == "l'homme" for strip in native for slot in vars(strip).values())
