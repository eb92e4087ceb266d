"""Measure what the strip does with slips: how many it mends, and which right words it would spoil.

Figures (``--json`` prints them as one object):

    words, slipped   Words of the held-out messages that were typed; those with a slip in them.
    first_right      Share of the slipped words whose right form takes the centre.
    mended           Share of them that a blank mends.
    first_right_listed
                     first_right of words that the list has; the next two are of these, too.
    shown            Share whose right form stands anywhere in the strip.
    slips_are_words  Share whose slips are other words of the list, which only context can tell.
    harm             Share of right words that a blank would change.
    harm_listed      The same of words that the list has.
    harm_own         The same of words that the list lacks and the person has typed before.
    harm_new         The same of words that the list lacks and the person never typed.
    blanks_right     Share of pairs of words without their blank whose right form takes the centre.
    keys_saved       Share of the keys of right words saved by a person who takes a word as soon as
                     the strip shows it; of every fourth word.
    suggestion_ms, suggestion_ms_p99
                     From a text typed key by key to its strip, median and 99th percentile, beside a
                     cache that everybody's older messages filled.
    suggestion_cpu_ms_p99
                     The same in processor time, which other work on the machine does not lengthen.

The channel: each letter is a slip with a chance of 5 %. Half of the slips hit a neighbouring key of
a QWERTY layout, 15 % leave the letter out, 15 % swap it with the next one, 10 % type it twice and
10 % are any other letter; a slip of an apostrophe leaves it out. The messages are each person's
newest fifth, typed after their right text, with a cache that learnt the older four fifths. They are
the text messages of ``SOTTO_DATA`` if it is set, and the manual inside CPython if not.

The model is a ``--bundle``, and the start that ships with sotto without one.
"""

import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.parts.figures import benchmark_parser, show_figures
from edge_client.datasets.registry import load_by_user_time
from edge_client.datasets.text_set import FederatedText
from export.bundles.keyboard_bundle import load_bundle
from export.graphs.registry import exporter_for
from export.runtime.next_word import WordModel
from export.runtime.personal_cache import PersonalCache
from export.runtime.slips import NEIGHBOUR, Layout
from export.runtime.strip import Keyboard, Strip
from export.runtime.word_graph import NextWordGraph
from export.runtime.word_index import WordIndex
from models.settings.model import schema_of
from models.text.vocabulary import Vocabulary, shipped_vocabulary
from models.text.words import UNK_WORD
from models.vector.codec import named_tensors
from server.config.federation import parse_config, preset_text
from server.config.plans import make_plan
from server.releases.starting_model import starting_parameters

SLIP_RATE = 0.05
KINDS = {"neighbour": 50, "dropped": 15, "swapped": 15, "doubled": 10, "other": 10}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAIRS_EVERY = 25
KEYS_EVERY = 4
_PRESET = "keyboard"


@dataclass
class Tally:
    """How often something was so."""

    hits: int = 0
    count: int = 0

    def add(self, *, hit: int, count: int = 1) -> None:
        """Count one more, or so many."""
        self.hits += hit
        self.count += count

    @property
    def share(self) -> float:
        """Return hits over count; NaN without any."""
        return self.hits / self.count if self.count else math.nan


class Fingers:
    """Slips drawn by the channel."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311  # slips, not secrets
        layout = Layout(["en"])
        self._neighbours = {
            one: [two for two in LETTERS if layout.replaced(one, two) == NEIGHBOUR]
            for one in LETTERS
        }

    def type(self, word: str) -> str:
        """Return a word as it is typed."""
        typed, at = "", 0
        while at < len(word):
            letter, after = word[at], word[at + 1 : at + 2]
            at += 1
            if self._draw.random() >= SLIP_RATE:
                typed += letter
                continue
            (kind,) = self._draw.choices(list(KINDS), list(KINDS.values()))
            if letter not in self._neighbours or kind == "dropped":
                continue
            if kind == "swapped" and after:
                typed += after + letter
                at += 1
            elif kind == "doubled":
                typed += letter * 2
            else:
                choices = self._neighbours[letter] if kind == "neighbour" else LETTERS
                typed += self._draw.choice([one for one in choices if one != letter])
        return typed


class Typist:
    """People typing their held-out messages, and what the strip made of it."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        self._vocabulary = vocabulary
        self._fingers = Fingers(seed)
        names = "first_right mended first_right_listed shown slips_are_words harm"
        names += " harm_listed harm_own harm_new"
        self.tallies = {name: Tally() for name in (*names.split(), "blanks_right", "keys_saved")}
        self.words = 0
        self.slipped = 0

    def type(self, keyboard: Keyboard, cache: PersonalCache, message: Sequence[str]) -> None:
        """Type one sentence after its own right words, with and without slips."""
        for place, word in enumerate(message):
            if word == UNK_WORD:
                continue
            before = "".join(f"{one} " for one in message[:place])
            self.words += 1
            typed = self._fingers.type(word)
            if typed and typed != word:
                self._slip(keyboard.suggest(before + typed), word, typed)
            self._right(keyboard.suggest(before + word), cache, word)
            if self.words % KEYS_EVERY == 0:
                self._keys(keyboard, before, word)
            if self.words % PAIRS_EVERY == 0:
                self._pair(keyboard, before, message[place : place + 2])

    def _slip(self, strip: Strip, word: str, typed: str) -> None:
        tallies = self.tallies
        right = _centre(strip) == word
        self.slipped += 1
        tallies["first_right"].add(hit=right)
        tallies["mended"].add(hit=right and _is_changed(strip))
        if word in self._vocabulary:
            tallies["first_right_listed"].add(hit=right)
            tallies["shown"].add(hit=word in _shown(strip))
            tallies["slips_are_words"].add(hit=typed in self._vocabulary)

    def _pair(self, keyboard: Keyboard, before: str, pair: Sequence[str]) -> None:
        if len(pair) == 2 and all(word in self._vocabulary for word in pair):
            strip = keyboard.suggest(before + "".join(pair))
            self.tallies["blanks_right"].add(hit=_centre(strip) == " ".join(pair))

    def _keys(self, keyboard: Keyboard, before: str, word: str) -> None:
        # A tap is a key, and types the blank too.
        ways = (n for n in range(len(word)) if word in _shown(keyboard.suggest(before + word[:n])))
        self.tallies["keys_saved"].add(
            hit=len(word) - next(ways, len(word)), count=len(word) + len(" ")
        )

    def _right(self, strip: Strip, cache: PersonalCache, word: str) -> None:
        unknown = "harm_own" if cache.share(word) else "harm_new"
        for name in ("harm", "harm_listed" if word in self._vocabulary else unknown):
            self.tallies[name].add(hit=_is_changed(strip))


def _centre(strip: Strip) -> str:
    return "" if strip.centre is None else strip.centre.text.lower()


def _shown(strip: Strip) -> list[str]:
    return [slot.text.lower() for slot in vars(strip).values() if slot]


def _is_changed(strip: Strip) -> bool:
    return strip.centre is not None and strip.centre.kind == "correction"


def measure(text: FederatedText, vocabulary: Vocabulary, model: WordModel, words: int) -> Typist:
    """Let everybody type some of their held-out messages, so many words altogether."""
    typist = Typist(vocabulary, seed=25)
    index = WordIndex(vocabulary)
    people = [name for name in sorted(text.train) if _held_out(text, name)]
    each = math.ceil(words / len(people))
    for name in people:
        cache = PersonalCache()
        cache.learn("\n".join(" ".join(sentence) for sentence in text.train[name]))
        keyboard = Keyboard(model, vocabulary, languages=["en"], cache=cache, index=index)
        end = typist.words + each
        for message in _held_out(text, name):
            if typist.words >= end:
                break
            typist.type(keyboard, cache, message)
    return typist


def _held_out(text: FederatedText, name: str) -> list[Sequence[str]]:
    return [*text.valid.get(name, ()), *text.test.get(name, ())]


def suggestion_ms(
    text: FederatedText, vocabulary: Vocabulary, model: WordModel, keys: int
) -> dict[str, float]:
    """Type held-out messages with slips key by key; return what a key takes."""
    cache = PersonalCache()
    for sentences in text.train.values():
        cache.learn("\n".join(map(" ".join, sentences)))
    keyboard = Keyboard(model, vocabulary, languages=["en"], cache=cache)
    fingers = Fingers(seed=1)
    taken_s = []
    for typed in _keys(text, fingers, keys):
        started, cpu = time.perf_counter(), time.thread_time()
        keyboard.suggest(typed)
        taken_s.append((time.perf_counter() - started, time.thread_time() - cpu))
    wall_ms, cpu_ms = 1e3 * np.array(taken_s[keys // 10 :]).T
    return {
        "suggestion_ms": float(np.median(wall_ms)),
        "suggestion_ms_p99": float(np.percentile(wall_ms, 99)),
        "suggestion_cpu_ms_p99": float(np.percentile(cpu_ms, 99)),
    }


def _keys(text: FederatedText, fingers: Fingers, keys: int) -> Iterator[str]:
    count = 0
    for name in sorted(text.train):
        for message in _held_out(text, name):
            line = "".join(f"{fingers.type(word)} " for word in message)
            for end in range(1, len(line) + 1):
                if count == keys:
                    return
                count += 1
                yield line[:end]


def shipped_graph() -> NextWordGraph:
    """Return the graph of the start that ships, by the preset that begins with it."""
    config = parse_config(preset_text(_PRESET), _PRESET)
    flat = starting_parameters(config, make_plan(config, "0" * 32, cohort_size=1)).numpy()
    graph = exporter_for(config.model).build(named_tensors(schema_of(config.model), flat))
    return NextWordGraph(graph.SerializeToString())


def load_text() -> FederatedText:
    """Return the text messages of ``SOTTO_DATA``, or the manual."""
    data = os.environ.get("SOTTO_DATA")
    return load_by_user_time("manual") if data is None else load_by_user_time("sms", Path(data))


def main() -> None:
    """Type, and show the figures."""
    parser = benchmark_parser(__doc__, quick="20,000 words and 3,000 keys, not 100,000 and 20,000")
    parser.add_argument("--bundle", type=Path, help="a keyboard's bundle that suggests")
    arguments = parser.parse_args()
    words, keys = (20_000, 3_000) if arguments.quick else (100_000, 20_000)
    text = load_text()
    if arguments.bundle is None:
        vocabulary, model = shipped_vocabulary(), shipped_graph()
    else:
        bundle = load_bundle(arguments.bundle)
        vocabulary, model = bundle.vocabulary, NextWordGraph(bundle.graph)
    typist = measure(text, vocabulary, model, words)
    figures: dict[str, float] = {"words": typist.words, "slipped": typist.slipped}
    figures |= {name: tally.share for name, tally in typist.tallies.items()}
    figures |= suggestion_ms(text, vocabulary, model, keys)
    show_figures(figures, "Slips on a keyboard", as_json=arguments.json)


if __name__ == "__main__":
    main()
