"""Bring a new keyboard or voice into service, or the one before it back.

The copy of a bundle is checked, so what was judged is what is served. It is promoted only if a
figure is not too much worse than the present version's. Other commands wait for the exchange alone.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track

from export.bundles.keyboard_bundle import load_bundle
from export.people.personal_file import kind_of
from export.runtime.word_graph import NextWordGraph
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import read_settings
from export.serve.loaded.keyboard_version import ServedModel, load_version, made_people
from export.serve.loaded.personal_models import load_person
from export.serve.promotion.carried import check_beside_everybody, named_in
from export.serve.promotion.changes import check_people, go_back, load_present, promote_on
from export.serve.promotion.gate import GateError, believed_figure, check_counted_alike
from export.serve.promotion.recall import measure_recall, read_held_out
from export.serve.promotion.voice import METRIC, VoiceVersions

_JUDGED_PEOPLE = 5


def promote(
    folder: ServingFolder,
    bundle: Path,
    *,
    metric: str | None = None,
    held_out: Path | None = None,
    people: Sequence[Path] = (),
    largest_loss: float,
) -> dict[str, object]:
    """Serve a bundle of a keyboard or of a voice from now on, if it passes the gate.

    If the present version cannot be loaded any more there is nothing to compare with: the new one
    passes, the history says why, and it may be the same version, which repairs it.

    Args:
        metric: The figure that the gate compares: with held-out text ``top1_recall`` or
            ``top3_recall``, else one that both bundles name and `models.tasks.figures` knows. None
            is ``top3_recall`` of a keyboard and ``perplexity`` of a voice.
        held_out: UTF-8 text that no device trained on, to measure keyboards; None believes the
            bundles' own figures.
        people: Folders of personal files, ``.zip``, and the file of everybody's embeddings; copied.
            The kind that is not given is carried over from the present version, as far as it fits.
        largest_loss: How much worse the figure may be: of a share in percentage points, of any
            other in per cent of the present one.

    Raises:
        GateError: If the figure is worse, or cannot be compared.
        ValueError: If the bundle is corrupt, unsigned though signatures are required, or cannot
            run; or if another version came to be served while this one was measured.
        OSError: If the disk refuses; what was served goes on.
    """
    folder.check()
    if kind_of(bundle) == "speech":
        if held_out is not None:
            raise ServingError("--held-out measures keyboards; a voice is judged by --metric alone")
        voices = VoiceVersions(folder, people)
        return promote_on(
            folder, voices, bundle, metric=metric or METRIC, largest_loss=largest_loss
        )
    sentences = None if held_out is None else read_held_out(held_out)
    keyboards = KeyboardVersions(folder, people, sentences)
    return promote_on(
        folder, keyboards, bundle, metric=metric or "top3_recall", largest_loss=largest_loss
    )


def roll_back(folder: ServingFolder, *, voice: bool = False, reason: str) -> dict[str, object]:
    """Serve the keyboard, or the voice, before again; errors as of ``changes.go_back``."""
    folder.check()
    if voice:
        return go_back(folder, VoiceVersions(folder), reason=reason)
    return go_back(folder, KeyboardVersions(folder), reason=reason)


class KeyboardVersions:
    """Keyboards of a folder (`export.serve.promotion.changes.Versioned`)."""

    what = "version"

    def __init__(
        self,
        folder: ServingFolder,
        people: Sequence[Path] = (),
        sentences: list[list[str]] | None = None,
    ) -> None:
        self.shelf = folder
        self._settings = read_settings(folder.settings)
        self.files: Sequence[Path]
        self._everybody, self.files = _kinds(people)
        self._sentences = sentences
        self.check_bundle: Callable[[Path], object] = load_bundle

    def load(self, version: str) -> ServedModel:
        """Load a version with what makes its people."""
        return load_version(self.shelf, self._settings, version)

    def load_copy(self, copy: str) -> ServedModel:
        """Load a copy with everybody's file that was given, and check the files beside it."""
        if self._everybody is not None:
            shutil.copyfile(self._everybody, self.shelf.everybody(copy))
        new = self.load(copy)
        check_people(self.shelf.files_of_people(copy), partial(load_person, self.shelf, new))
        return new

    def check_of_carried(self, new: ServedModel, present: str | None) -> Callable[[Path], object]:
        """Return what checks that a file still counts beside what was given."""
        given = new.made
        before = set() if present is None else named_in(self.shelf.everybody(present)) or set()

        def check(file: Path) -> None:
            if file == self.shelf.everybody(new.version):
                made_people(self.shelf, new.version, new.graph, new.manifest)
                return
            load_person(self.shelf, new, file.stem)
            if given is not None:
                check_beside_everybody(file, given.names, before)

        return check

    def measure(
        self, metric: str, new: ServedModel, version: str, present: str | None
    ) -> tuple[float | None, float, str]:
        """Measure both versions on held-out text, or believe the figures of their bundles."""
        if new.made is None:  # What was carried over may make people.
            made = made_people(self.shelf, new.version, new.graph, new.manifest)
            new = replace(new, made=made)
        old, why_alone = load_present(self.load, present, offered=version, what=self.what)
        compared = [new] if old is None else [old, new]
        measured = _Measured(self.shelf, metric, self._sentences, compared)
        before = None if old is None else measured.figure(old)
        return before, measured.figure(new), why_alone


def _kinds(people: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """Return the file of everybody's embeddings, if it is among them, and the folders of files."""
    everybody = [path for path in people if path.is_file() and kind_of(path) == "people"]
    if len(everybody) > 1:
        raise ServingError(
            "--people must name one file of everybody's embeddings at most, got "
            f"{everybody[0]} and {everybody[1]}"
        )
    return (everybody[0] if everybody else None), [path for path in people if path not in everybody]


class _Measured:
    """The figure of each version, measured on held-out text or believed."""

    def __init__(
        self,
        folder: ServingFolder,
        metric: str,
        sentences: list[list[str]] | None,
        versions: Sequence[ServedModel],
    ) -> None:
        """Choose the people who are measured: the first few who have a model on every version."""
        self._folder = folder
        self._metric = metric
        self._sentences = sentences
        self._people: list[str] = []
        if sentences is None:
            check_counted_alike(metric, *(one.manifest.metrics for one in versions))
            return
        if metric not in ("top1_recall", "top3_recall"):
            raise GateError(f"metric must be top1_recall or top3_recall with text, got {metric!r}")
        personal = [_names(folder, one) for one in versions if one.manifest.personal is not None]
        if personal:
            self._people = sorted(set.intersection(*personal))[:_JUDGED_PEOPLE]
            if not self._people:
                raise GateError(
                    "nobody has a model on the new version and on the present one to measure; give "
                    "their files with --people, and with `sotto-serve person` to the present one, "
                    "or judge by the bundles' own figures without --held-out"
                )

    def figure(self, model: ServedModel) -> float:
        """Return a version's figure."""
        if self._sentences is None:
            return believed_figure(
                self._metric,
                model.manifest.metrics,
                round_number=model.manifest.round_number,
                otherwise="; or give held-out text with --held-out",
            )
        follow = partial(_shown, model.version)
        recalls = [
            measure_recall(own, model.vocabulary, self._sentences, follow=follow)
            for own in self._graphs(model)
        ]
        figures = [
            one.top1_recall if self._metric == "top1_recall" else one.top3_recall for one in recalls
        ]
        return sum(figures) / len(figures)

    def _graphs(self, model: ServedModel) -> Iterator[NextWordGraph]:
        """Yield everyone's model, or those of the people who are measured."""
        if model.manifest.personal is None:
            yield model.graph
            return
        for name in self._people:
            if model.made is None or self._folder.person(model.version, name).is_file():
                yield load_person(self._folder, model, name)
            else:
                yield model.made.graph_of(name)


def _names(folder: ServingFolder, model: ServedModel) -> set[str]:
    """Return the clients with a model of their own on a version."""
    files = {path.stem for path in folder.files_of_people(model.version) if path.suffix == ".zip"}
    return files | set(model.made.names if model.made is not None else ())


def _shown(version: str, texts: Sequence[int]) -> Iterable[int]:
    """Show how far the measuring is, on a terminal."""
    console = Console(stderr=True)
    return track(
        texts,
        f"measuring {version}",
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
