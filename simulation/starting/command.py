"""Learn a start from beginning to end, in a folder that it can go on in."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from edge_client.descent.compute import resolve_device
from models.data.language_lists import language_list, list_name
from models.text.vocabulary import SHIPPED_NAME, SHIPPED_SIZE, Vocabulary
from server.config.chosen_words import named_languages, parse_languages
from server.config.word_list import WordListSettings
from simulation.config.run_files import take_up
from simulation.figures.progress import tell
from simulation.starting.finishing import Learnt, measure, release, write_packed
from simulation.starting.floor import bigram_figures
from simulation.starting.steps_bar import StepsBar
from simulation.starting.texts import NamedText, held_out, read_corpus
from simulation.starting.training import Recipe, learn, step_count

_RECIPE_FILE = "start.json"
_CHECKPOINT_FILE = "checkpoint.pt"
_RELEASES_FOLDER = "releases"


class Request(NamedTuple):
    """What is asked for; see ``simulation.starting.cli``."""

    texts: tuple[NamedText, ...]
    measured: tuple[NamedText, ...]
    language: str
    words: Path | None
    epochs: int
    width: int
    device: str
    seed: int
    out: Path
    pack: Path | None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A start that is ready.

    Attributes:
        release: Folder for ``start_from``.
        figures: What it makes of the measured texts.
        bigram: What a bigram makes of them that was counted on the text it learnt from.
        packed: Its packed file.
        packed_bytes: That file's size.
        packed_figures: What the packed one makes of them.
    """

    release: str
    figures: dict[str, float]
    bigram: dict[str, float]
    packed: str | None = None
    packed_bytes: int | None = None
    packed_figures: dict[str, float] = {}

    def in_words(self) -> str:
        """Return lines for people: figures side by side, and where everything lies."""
        columns = {"float32": self.figures}
        if self.packed_figures:
            columns["packed"] = self.packed_figures
        columns["bigram"] = self.bigram
        width = max(map(len, self.figures), default=0)
        rows = [
            f"{name:{width}}" + "".join(f" {column[name]:9.4g}" for column in columns.values())
            for name in self.figures
        ]
        if rows:
            rows.insert(0, " " * width + "".join(f" {name:>9}" for name in columns))
        if self.packed is not None:
            rows.append(f"packed in {self.packed_bytes} bytes: {self.packed}")
        return "\n".join([*rows, f'start_from = "{self.packed or self.release}"'])


def learn_start(request: Request) -> Outcome:
    """Learn a start, or go on with one; measure, release and pack it.

    Raises:
        StoppedStartError: If the folder holds a start that cannot be gone on with.
        ValueError: If the folder holds another start, or a text, the word list, the language or
            the device cannot be used.
        OSError: If a file cannot be read or written.
    """
    resolve_device(request.device)
    words, vocabulary = _word_list(request)
    # Before hours of training, so that a mistyped path is told now.
    measured = {text.name: held_out(text, vocabulary) for text in request.measured}
    corpus = read_corpus(request.texts, vocabulary)
    recipe = Recipe(
        language=",".join(named_languages(request.language)),
        words_sha256=vocabulary.sha256.hex(),
        vocabulary_size=len(vocabulary),
        width=request.width,
        epochs=request.epochs,
        seed=request.seed,
        texts=corpus.facts,
        text_sha256=corpus.sha256,
    )
    take_up(
        request.out / _RECIPE_FILE,
        msgspec.json.encode(recipe, order="deterministic"),
        otherwise="a start of other settings, words or text",
    )
    tell(
        f"{text.name}: {text.token_count:,} tokens, {text.unknown_words:.1%} of its words unknown, "
        f"read {text.times} times an epoch{' of the first half' if text.early else ''}"
        for text in corpus.facts
    )
    with StepsBar(step_count(recipe, corpus)) as bar:
        parameters = learn(
            recipe, corpus, request.out / _CHECKPOINT_FILE, bar.stepped, device=request.device
        ).numpy()
    learnt = Learnt(recipe, words, vocabulary, parameters)
    figures = measure(recipe, parameters, measured)
    bigram = dict(bigram_figures(corpus, measured, len(vocabulary)))
    folder = release(request.out / _RELEASES_FOLDER, learnt, figures)
    if request.pack is None:
        return Outcome(release=str(folder), figures=figures, bigram=bigram)
    packed_figures = measure(recipe, learnt.rounded, measured)
    size = write_packed(request.pack, learnt, packed_figures)
    return Outcome(
        release=str(folder),
        figures=figures,
        bigram=bigram,
        packed=str(request.pack),
        packed_bytes=size,
        packed_figures=packed_figures,
    )


def _word_list(request: Request) -> tuple[WordListSettings, Vocabulary]:
    languages = parse_languages(request.language)
    if request.words is not None:
        text = request.words.read_bytes()
        words = WordListSettings(
            path=str(request.words), size=max(text.count(b"\n"), 3), languages=languages
        )
        return words, words.load()
    if languages:
        # The list that `sotto-server init --language` makes of the same languages.
        name = f"{list_name(languages, SHIPPED_SIZE)}.txt"
        words = WordListSettings(path=name, size=SHIPPED_SIZE, languages=languages)
        return words, language_list(languages, SHIPPED_SIZE)
    words = WordListSettings(name=SHIPPED_NAME, size=SHIPPED_SIZE)
    return words, words.load()
