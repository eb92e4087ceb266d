"""Bring a new version into service, or the one before it back.

A bundle is copied first and the copy is checked, so what was judged is what is served. It is
promoted only if a figure is not worse than the present version's by more than so much. Other
commands go on while it is copied and measured; they wait for the exchange alone.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track

from export.bundles.keyboard_bundle import load_bundle
from export.people.personal_file import kind_of
from export.runtime.word_graph import NextWordGraph
from export.serve.folder.copies import copied, flush
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import read_settings
from export.serve.folder.versions import read_versions, version_name
from export.serve.loaded.keyboard_version import ServedModel, load_version, made_people
from export.serve.loaded.personal_models import load_person
from export.serve.promotion.carried import CarriedPeople, check_beside_everybody, named_in
from export.serve.promotion.changes import check_people, go_back, load_present, serve_from_now
from export.serve.promotion.gate import GateError, believed_figure, judge
from export.serve.promotion.recall import measure_recall, read_held_out

_JUDGED_PEOPLE = 5


def promote(
    folder: ServingFolder,
    bundle: Path,
    *,
    metric: str,
    held_out: Path | None,
    people: Sequence[Path] = (),
    largest_loss: float,
) -> dict[str, object]:
    """Serve a bundle from now on, if it passes the gate.

    Where the present version cannot be loaded any more there is nothing to compare with: the new
    one passes, the history says why, and it may be the same version, which repairs it.

    Args:
        folder: The serving folder.
        bundle: Bundle folder or ``.zip``; copied.
        metric: The figure that the gate compares: with held-out text ``top1_recall`` or
            ``top3_recall``, else one that both bundles name and `models.tasks.figures` knows.
        held_out: UTF-8 text that no device trained on; None believes the bundles' own figures.
        people: For a bundle of which a part is each person's own: folders of personal files,
            ``.zip``, and the file of everybody's embeddings; copied. What is not given of the two
            is carried over from the present version, as far as it fits.
        largest_loss: How much worse the figure may be: of a share in percentage points, of any
            other in per cent of the present one.

    Returns:
        The version, what the gate found, and how many people's files were carried over.

    Raises:
        GateError: If the figure is worse, or cannot be compared.
        ValueError: If the bundle is corrupt, unsigned where that is not accepted, or cannot run;
            or if another version came to be served while this one was measured.
        OSError: If the disk refuses; what was served goes on.
    """
    folder.check()
    settings = read_settings(folder.settings)
    sentences = None if held_out is None else read_held_out(held_out)
    everybody, files = _kinds(people)
    with folder.promoting(), copied(folder, bundle, files, check=load_bundle) as incoming:
        if everybody is not None:
            shutil.copyfile(everybody, folder.everybody(incoming.name))
        new = load_version(folder, settings, incoming.name)
        check_people(
            folder.files_of_people(new.version), lambda client: load_person(folder, new, client)
        )
        version = version_name(new.manifest)
        versions = read_versions(folder)
        carried = _carrying(folder, new, versions.present, files_are_given=bool(files))
        carried.follow(versions.present)
        if new.made is None:
            made = made_people(folder, new.version, new.graph, new.manifest)
            new = replace(new, made=made)
        old, why_alone = load_present(
            partial(load_version, folder, settings),
            versions.present,
            offered=version,
            what="version",
        )
        measured = _Measured(folder, metric, sentences, [new] if old is None else [old, new])
        before = None if old is None else measured.figure(old)
        figure = measured.figure(new)
        reason = judge(metric, before, figure, largest_loss=largest_loss, why_alone=why_alone)
        flush(folder, incoming)
        with folder.changing():
            carried.follow(versions.present)
            changed = serve_from_now(folder, incoming, version, reason, instead_of=versions.present)
    return {"version": version, "before": changed.before, "gate": reason, **carried.report()}


def roll_back(folder: ServingFolder, *, reason: str) -> dict[str, object]:
    """Serve the version before again; the present one is then the one before.

    Raises:
        ServingError: If there is none.
        ValueError: If its bundle is no longer what it was.
        OSError: If the disk refuses.
    """
    settings = read_settings(folder.settings)
    return go_back(
        folder,
        folder,
        lambda version: load_version(folder, settings, version),
        what="version",
        reason=reason,
    )


def _kinds(people: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """Return the file of everybody's embeddings, if it is among them, and the folders of files."""
    everybody = [path for path in people if path.is_file() and kind_of(path) == "people"]
    if len(everybody) > 1:
        raise ServingError(
            "--people must name one file of everybody's embeddings at most, got "
            f"{everybody[0]} and {everybody[1]}"
        )
    return (everybody[0] if everybody else None), [path for path in people if path not in everybody]


def _carrying(
    folder: ServingFolder, new: ServedModel, present: str | None, *, files_are_given: bool
) -> CarriedPeople:
    """Return what carries people's files over to a new version, beside what was given."""
    given = new.made
    named_before = set() if present is None else named_in(folder.everybody(present)) or set()

    def check(file: Path) -> None:
        if file == folder.everybody(new.version):
            made_people(folder, new.version, new.graph, new.manifest)
            return
        load_person(folder, new, file.stem)
        if given is not None:
            check_beside_everybody(file, given.names, named_before)

    return CarriedPeople(folder, new.version, check, files_are_given=files_are_given)


class _Measured:
    """Find the figure of each version, measured on held-out text or believed."""

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
    """Return who has a model of their own on a version."""
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
