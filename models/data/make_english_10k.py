"""Make ``english-10k.txt`` and ``english-rare.txt`` from sources whose licences allow it.

README.md beside them lists the sources.

    python -P models/data/make_english_10k.py --irc messages.jsonl.gz --comments train.tsv
    --plays roles.jsonl.gz --readings metadata.csv --scowl /usr/share/dict/scowl
    --out models/data/english-10k.txt --rare models/data/english-rare.txt
    --blocked export/blocked/lists/en.txt

It needs the package wordfreq, whose emoji stand behind those that our sources have. The rare words
go on where the list ends, names last. The same sources always give the same lists. ``--measure
FILE`` prints which share of another text's words the list has; such a text has no influence on it.
"""

import argparse
import calendar
import csv
import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

from models.data.language_lists import EMOJI_COUNT, language_list, with_emoji
from models.text.letters import is_emoji
from models.text.vocabulary import SHIPPED_SIZE, Vocabulary
from models.text.words import EOS_WORD, UNK_WORD, tokenise

# Chat and comments are nearest to a keyboard. The other sources show that a word is alive, not how
# often it is typed, so they add at most this to its relative frequency there.
_MOST_FROM_AFAR = 5e-6
# A word in SCOWL's smallest lists is common whether or not our sources have it; these are the
# relative frequencies it gets on top.
_COMMON = {10: 5e-6, 20: 2e-6, 35: 1e-7, 40: 0.0, 50: 0.0}
_SPELLINGS = ("english", "american", "british")
# One spammer must not make a word frequent.
_MOST_PER_NICKNAME = 20


class _Least(NamedTuple):
    """How many must say a word: by few it may be a name, a password or a slip of the finger.

    What no word list knows must be common slang, and what is also a name must be said by many who
    cannot all mean the same person.
    """

    listed: int
    unlisted: int
    named: int


_NICKNAMES = _Least(5, 10, 120)
# Comments name no author, and nearly all of them have one of their own; most names are masked.
_COMMENTS = _Least(3, 8, 60)
_MASK = re.compile(r"\[[A-Z]+\]")
# People may type these; a keyboard does not suggest them.
_NEVER_SUGGESTED = re.compile(
    r".*(fuck|shit|cunt|bitch|nigg|fagg|whore|slut|retard|bastard|rapist|dildo|wank).*"
    r"|(ass|asses|asshole|dick|dicks|cock|cocks|cum|cumming|fag|fags|kike|spic|chink|tits|porn)"
    r"|(anal|boner|homo|incest|orgasm|rape[sd]?|raping)"
)
_SLUR = re.compile(
    r"(negr[oe]|dyke|slag|wog|chink|mongoloid|hottentot|jewess|fagot|oriental|cretin|bugger|turd)\w*"
    r"|(porn|prostitut|molest|grop[ei]|piss|boob|hooter|horn[iy]|kink[iy]|org[iy]|pervert)\w*"
    r"|(ejaculat|testic|vagin|necrophil|genital|penis|incest)\w*"
    r"|japs?|wops?|arses?|nudes?|nudest|anus(es)?|rectums?"
)
_ENDINGS = ("", "s", "es", "d", "ed", "ing", "er", "ers")
# Two letters at least: SCOWL has each letter as a word, and none would be mended.
_RARE = re.compile("(?!.*'s$)[a-zà-öø-ÿ][a-zà-öø-ÿ']*[a-zà-öø-ÿ]")
_KINDS = ("words", "contractions", "upper", "proper-names")
_NOTE = """\
Words of SCOWL: first those that the sources have which README.md of sotto's models/data lists, most
frequent first; then others by the alphabet, and names.
The collective work is Copyright 2000-2011 by Kevin Atkinson as well as any of the copyrights
mentioned in its README. Permission to use, copy, modify, distribute and sell these word lists, the
associated scripts, the output created from the scripts, and its documentation for any purpose is
hereby granted without fee, provided that the above copyright notice appears in all copies and that
both that copyright notice and this permission notice appear in supporting documentation. Kevin
Atkinson makes no representations about the suitability of this array for any purpose. It is
provided "as is" without express or implied warranty.
""".splitlines()
_BOT_NAME = re.compile(r"(l?ubot+u?|floodbot|chanserv|nickserv)\d*", re.IGNORECASE)
_ADDRESSEE = re.compile(r"\s*(\S+?)[:,]\s*")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the list and print what it covers."""
    options = _parser().parse_args(argv)
    emoji = list(filter(is_emoji, language_list(("en",), SHIPPED_SIZE).words))
    listed, names = read_scowl(options.scowl)
    afar = {
        "plays": count(_play_lines(options.plays)),
        "readings": count(_readings(options.readings)),
        "manual": count(topics.values()),
    }
    typed = {
        "chat": allowed_chat(count_chat(read_json_lines(options.irc)), listed, names),
        "comments": allowed_comments(_comments(options.comments), listed, names),
    }
    scores = score(typed, afar, listed)
    ranked = sorted(scores, key=lambda word: (-scores[word], word))
    # Emoji that nobody typed in our sources come last.
    ranked += [one for one in emoji if one not in scores]
    words = with_emoji(ranked, SHIPPED_SIZE - 2, EMOJI_COUNT)
    vocabulary = Vocabulary((UNK_WORD, EOS_WORD, *words))
    options.out.write_bytes(vocabulary.to_bytes())
    sys.stdout.write(f"{options.out}: {len(vocabulary)} words of {len(ranked)} candidates\n")
    blocked = options.blocked.read_text(encoding="utf-8").split()
    ranked += sorted(_scowl_names(options.scowl, "proper-names", "upper"))
    rare = rare_words(ranked, words, known_words(options.scowl), blocked)
    options.rare.write_text(
        "".join([f"# {line}\n" for line in _NOTE] + [f"{word}\n" for word in rare]),
        encoding="utf-8",
    )
    sys.stdout.write(f"{options.rare}: {len(rare)} words\n")
    for path in options.measure:
        sys.stdout.write(f"{path}: {coverage(vocabulary, path):.1%} of its words\n")
    return 0


def read_scowl(folder: Path) -> tuple[dict[str, int], set[str]]:
    """Return SCOWL's lower-case words with the size class of each, and its proper names."""
    listed: dict[str, int] = {}
    for size in sorted(_COMMON, reverse=True):
        for spelling in _SPELLINGS:
            for word in _scowl_words(folder / f"{spelling}-words.{size}"):
                listed[word] = size
            for word in _scowl_words(folder / f"{spelling}-contractions.{size}"):
                listed[word.lower()] = size
    for day_or_month in (*calendar.day_name, *calendar.month_name[1:]):
        listed[day_or_month.lower()] = 10
    listed["i"] = 10
    names = {kind: _scowl_names(folder, kind) for kind in ("proper-names", "upper")}
    # Where a rare word is also a name, such as john, people mean the name.
    everyday = {
        word: size
        for word, size in listed.items()
        if size < 40 or word not in names["proper-names"] | names["upper"]
    }
    # Upper-case words beside names are languages, months and brands, which people do type.
    return everyday, names["proper-names"]


def count_chat(messages: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Count the words of each nickname of the training split; the address of a message is none."""
    people = [
        message
        for message in messages
        if message["split"] == "train" and not _BOT_NAME.fullmatch(message["user"])
    ]
    said_by = {message["user"].lower(): Counter[str]() for message in people}
    for message in people:
        words = tokenise(_without_addressee(message["text"], said_by))
        said_by[message["user"].lower()].update(words)
    return said_by


def allowed_chat(
    said_by: dict[str, Counter[str]], listed: dict[str, int], names: set[str]
) -> Counter[str]:
    """Return how often people say each word that enough of them say and that names nobody."""
    speakers = Counter(word for said in said_by.values() for word in said)

    def is_name(word: str) -> bool:
        return word in names or word in said_by or word.removesuffix("'s") in said_by

    allowed = _said_by_enough(speakers, listed, is_name, _NICKNAMES)
    counts: Counter[str] = Counter()
    for said in said_by.values():
        for word, number in said.items():
            if word in allowed:
                counts[word] += min(number, _MOST_PER_NICKNAME)
    return counts


def allowed_comments(
    comments: Iterable[str], listed: dict[str, int], names: set[str]
) -> Counter[str]:
    """Return in how many comments each word stands that stands in enough and names nobody."""
    counts = Counter(word for comment in comments for word in set(tokenise(comment)))

    def is_name(word: str) -> bool:
        return word in names or word.removesuffix("'s") in names

    return _said_by_enough(counts, listed, is_name, _COMMENTS)


def _said_by_enough(
    counts: Counter[str], listed: dict[str, int], is_name: Callable[[str], bool], least: _Least
) -> Counter[str]:
    def needed(word: str) -> int:
        if word in listed:
            return least.listed
        return least.named if is_name(word) else least.unlisted

    return Counter({word: number for word, number in counts.items() if number >= needed(word)})


def score(
    typed: dict[str, Counter[str]], afar: dict[str, Counter[str]], listed: dict[str, int]
) -> dict[str, float]:
    """Return the relative frequency of every word that may enter the list.

    Args:
        typed: Counts of what people type; each text weighs as much as another.
        afar: Counts of other texts.
    """
    scores: defaultdict[str, float] = defaultdict(float)
    for counter in typed.values():
        for word, number in counter.items():
            scores[word] += number / counter.total() / len(typed)
    for word, size in listed.items():
        # SCOWL lists a possessive for every noun; only those that people type are worth a row.
        if not word.endswith("'s"):
            scores[word] += _COMMON[size]
            shares = (max(counter[word] - 1, 0) / counter.total() for counter in afar.values())
            scores[word] += min(sum(shares) / len(afar), _MOST_FROM_AFAR)
    return {
        word: value
        for word, value in scores.items()
        if value
        and word != UNK_WORD
        and not _NEVER_SUGGESTED.fullmatch(word)
        and not _BOT_NAME.fullmatch(word)
    }


def known_words(folder: Path) -> set[str]:
    """Return what SCOWL knows up to size 70: no slip of many fingers, and no password."""
    names = (f"{spelling}-{kind}.[1-7]?" for spelling in _SPELLINGS for kind in _KINDS)
    paths = (path for name in names for path in sorted(folder.glob(name)))
    return {word.lower() for path in paths for word in _scowl_words(path)}


def rare_words(
    ranked: Iterable[str], listed: Iterable[str], known: Container[str], blocked: Iterable[str]
) -> list[str]:
    """Return words in their order that are known and not listed, without offensive ones."""
    never = {word + ending for word in blocked for ending in _ENDINGS}
    taken = {*listed, *never}
    return [
        word
        for word in dict.fromkeys(ranked)
        if word in known
        and word not in taken
        and _RARE.fullmatch(word)
        and not _NEVER_SUGGESTED.fullmatch(word)
        and not _SLUR.fullmatch(word)
    ]


def count(texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts."""
    return Counter(word for text in texts for word in tokenise(text))


def coverage(vocabulary: Vocabulary, path: Path) -> float:
    """Return the share of a text's words, hidden ones aside, that the list has."""
    words = [word for text in _texts(path) for word in tokenise(text) if word != UNK_WORD]
    return sum(word in vocabulary for word in words) / len(words)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the object on each line of a gzipped file; sources differ in their fields."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Make the word list that ships with sotto.")
    for name, what in (
        ("irc", "messages.jsonl.gz of the #ubuntu chat; only its train split is read"),
        ("comments", "train.tsv of GoEmotions"),
        ("plays", "roles.jsonl.gz of Shakespeare's plays"),
        ("readings", "metadata.csv of LJ Speech"),
        ("scowl", "folder of SCOWL's lists (Debian: /usr/share/dict/scowl)"),
        ("blocked", "offensive words, one a line"),
        ("out", "file to write"),
        ("rare", "file of the rarer words to write"),
    ):
        parser.add_argument(f"--{name}", type=Path, required=True, help=what)
    parser.add_argument(
        "--measure",
        type=Path,
        action="append",
        default=[],
        help="text, or .jsonl.gz with a text field, to measure coverage on; may be repeated",
    )
    return parser


def _scowl_words(path: Path) -> list[str]:
    return path.read_text("utf-8").split() if path.exists() else []


def _scowl_names(folder: Path, *kinds: str) -> set[str]:
    paths = (path for kind in kinds for path in sorted(folder.glob(f"english-{kind}.[1-6]?")))
    return {name.lower() for path in paths for name in _scowl_words(path)}


def _comments(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield _MASK.sub(f" {UNK_WORD} ", line.split("\t", 1)[0])


def _play_lines(path: Path) -> Iterator[str]:
    for role in read_json_lines(path):
        for _, lines in role["speeches"]:
            yield from lines


def _readings(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.reader(lines, delimiter="|", quoting=csv.QUOTE_NONE):
            yield row[1]


def _without_addressee(text: str, nicknames: Container[str]) -> str:
    match = _ADDRESSEE.match(text)
    return text[match.end() :] if match and match[1].lower() in nicknames else text


def _texts(path: Path) -> Iterator[str]:
    if path.suffix == ".gz":
        return (row["text"] for row in read_json_lines(path) if row.get("split") != "train")
    return iter(path.read_text("utf-8").splitlines())


if __name__ == "__main__":
    sys.exit(main())
