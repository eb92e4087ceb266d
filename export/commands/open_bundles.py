"""Open a bundle for whoever asks it: the command that suggests or speaks, and the Python door.

No torch, so ``sotto[export]`` suffices for a keyboard and ``sotto[speak]`` for a voice.
"""

from pathlib import Path

from export.blocked.blocked_words import blocked_words
from export.bundles.keyboard_bundle import load_bundle, load_speech_bundle
from export.commands.sources import certificate_in
from export.people.personal_file import load_personal_file
from export.runtime.next_word import NextWords, Suggestion, written_out
from export.runtime.personal_ranking import PersonalRanking
from export.runtime.word_graph import NextWordGraph
from export.runtime.word_index import WordIndex
from export.speaking.voice import open_voice


class OpenKeyboard:
    """A keyboard's bundle, with a person's own part where one is given."""

    def __init__(
        self,
        bundle: Path,
        *,
        person: Path | None = None,
        authority: Path | None = None,
        offensive: bool = False,
    ) -> None:
        """Read the files, and check digests and signatures.

        Args:
            bundle: Folder or .zip.
            person: File that ``sotto-export personal`` made; None for everyone's keyboard.
            authority: The federation's certificate, whose coordinator must have signed both.
            offensive: Whether words on the lists of offensive ones are suggested.

        Raises:
            ValueError: If the bundle or the person's file is refused.
            OSError: If one cannot be read.
        """
        certificate = certificate_in(authority)
        opened = load_bundle(bundle, authority=certificate)
        self._graph = NextWordGraph(opened.graph)
        if person is not None:
            own = load_personal_file(person, authority=certificate)
            self._graph = own.on(self._graph, opened.manifest)
        self.manifest = opened.manifest
        self._vocabulary = opened.vocabulary
        self._index = WordIndex(opened.vocabulary)
        blocked = () if offensive else blocked_words(opened.manifest.languages)
        self._ranking = PersonalRanking(opened.vocabulary, self._index, blocked=blocked)

    def suggest(self, text: str, *, count: int) -> list[Suggestion]:
        """Return at most ``count`` words for the end of a text, likeliest first.

        Raises:
            ValueError: If the count is below 1.
        """
        if count < 1:
            raise ValueError(f"count must be >= 1, got {count}")
        words = NextWords(self._graph, self._vocabulary, slot_count=count, index=self._index)
        reading = words.read(text)
        if reading is None:
            return []
        return written_out(self._ranking.rank(reading, count=count), reading)


class OpenVoice:
    """A voice's bundle: of one person, or of nobody in particular."""

    def __init__(
        self, bundle: Path, *, person: Path | None = None, authority: Path | None = None
    ) -> None:
        """Read the files, as ``OpenKeyboard`` does."""
        certificate = certificate_in(authority)
        opened = load_speech_bundle(bundle, authority=certificate)
        voice = open_voice(opened)
        self.manifest = opened.manifest
        if person is None:
            self.voice = voice.for_nobody()
        else:
            own = load_personal_file(person, authority=certificate)
            self.voice = own.on(voice, opened.manifest)
