"""Give every client its own model, and keep the texts that are being typed.

Texts are kept as word ids, in memory only, so that a new word costs one step; the ones longest
untouched go first.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from export.runtime.corrections import OFFERED
from export.runtime.next_word import NextWords, Suggestion, WordModel, written_out
from export.runtime.strip import Strip, fill_strip, shown_strip
from export.runtime.word_graph import NextWordGraph
from export.serve.loaded.keyboard_version import ServedModel
from export.serve.loaded.personal_models import OwnModels
from models.text.words import tokenise

MOST_SUGGESTIONS = 10
MOST_KEPT_WORDS = 1_000


@dataclass(frozen=True)
class _Text:
    """One text that is being typed; one thread at a time follows it."""

    model: WordModel
    words: NextWords
    turn: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Suggested:
    """The answer to one text: the likeliest words, in order, and the strip of three."""

    words: list[Suggestion]
    strip: Strip


class People:
    """Suggestions to many people at once; safe to call from many threads."""

    def __init__(self, models: OwnModels, *, kept_texts: int) -> None:
        """Begin with nobody; of ``kept_texts`` texts at a time each holds about 40 KB of scores."""
        self._models = models
        self._kept_texts = kept_texts
        self._texts: OrderedDict[tuple[str, str], _Text] = OrderedDict()
        self._lock = threading.Lock()
        models.on_let_go = self._forget

    def __len__(self) -> int:
        return len(self._texts)

    def model_of(self, client: str, served: ServedModel) -> NextWordGraph:
        """Return a client's own model on one version.

        Raises:
            NoPersonalModelError: If the version needs a personal file and there is none.
            BundleError: If it is corrupt, another person's, or not of this version.
        """
        return self._models.load(client, served)

    def suggest(
        self,
        client: str,
        served: ServedModel,
        text: str,
        *,
        count: int,
        keep: bool,
        offensive: bool = False,
        kept_words: Collection[str] = (),
    ) -> Suggested:
        """Return the likeliest words for the end of a client's text; errors as of ``model_of``.

        Args:
            count: How many words at most, in [1, ``MOST_SUGGESTIONS``].
            keep: Whether to carry the text to the next call; without, nothing of it stays.
            offensive: Whether words of the shipped lists of blocked words may come, too.
            kept_words: Words that the strip does not correct.
        """
        kept = self._text(client, served, keep=keep)
        with kept.turn:
            reading = kept.words.read(text)
        if reading is None:
            return Suggested([], fill_strip((), ""))
        ranking = served.open_ranking if offensive else served.ranking
        found = ranking.rank(reading, count=max(count, OFFERED))
        strip = shown_strip(
            served.corrections,
            found[:OFFERED],
            reading,
            text,
            ranking=ranking,
            languages=served.manifest.languages,
            kept=frozenset(tokenise(" ".join(kept_words))),
        )
        return Suggested(written_out(found[:count], reading), strip)

    def forget_all_but(self, versions: list[str]) -> None:
        """Drop the texts on versions that are no longer served."""
        self._models.forget_all_but(versions)
        with self._lock:
            for key in [key for key in self._texts if key[1] not in versions]:
                del self._texts[key]

    def forget_clients_but(self, clients: Collection[str]) -> None:
        """Drop the texts and the models of those who are clients no more."""
        self._models.forget_clients_but(clients)
        with self._lock:
            for key in [key for key in self._texts if key[0] not in clients]:
                del self._texts[key]

    def _forget(self, client: str, version: str) -> None:
        """Drop a text with the model that it holds, since that one is held no more."""
        with self._lock:
            self._texts.pop((client, version), None)

    def _text(self, client: str, served: ServedModel, *, keep: bool) -> _Text:
        model = self._models.load(client, served)
        if not keep:
            return _begun(model, served)
        key = (client, served.version)
        with self._lock:
            kept = self._texts.get(key)
            if kept is not None and kept.model is model:
                self._texts.move_to_end(key)
                return kept
        made = _begun(model, served)
        with self._lock:
            self._texts[key] = made
            self._texts.move_to_end(key)
            while len(self._texts) > self._kept_texts:
                self._texts.popitem(last=False)
        return made


def _begun(model: WordModel, served: ServedModel) -> _Text:
    words = NextWords(model, served.vocabulary, slot_count=MOST_SUGGESTIONS, index=served.index)
    return _Text(model, words)
