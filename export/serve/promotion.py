"""Bring a new version into service, or the one before it back.

A bundle is copied first and the copy is checked, so what was judged is what is served. It is
promoted only if a figure is not worse than the present version's by more than so much. Other
commands go on while it is copied and measured; they wait for the exchange alone.
"""

import shutil
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track

from export.bundle import load_bundle
from export.personal_file import kind_of
from export.runtime import NextWordGraph
from export.serve.changes import check_people, go_back, load_present, serve_from_now
from export.serve.copies import copied, flush
from export.serve.folder import ServingFolder
from export.serve.gate import GateError, believed_figure, judge
from export.serve.keyboard_version import ServedModel, load_version
from export.serve.personal_models import load_person
from export.serve.recall import measure_recall, read_held_out
from export.serve.settings import read_settings
from export.serve.versions import read_versions, version_name

_JUDGED_PEOPLE = 5


def promote(
    folder: ServingFolder,
    bundle: Path,
    *,
    metric: str,
    held_out: Path | None,
    people: Path | None = None,
    largest_loss: float,
) -> dict[str, object]:
    """Serve a bundle from now on, if it passes the gate.

    Where the present version cannot be loaded any more there is nothing to compare with: the new
    one passes, the history says why, and it may be the same version, which repairs it.

    Args:
        folder: The serving folder.
        bundle: Bundle folder or ``.zip``; copied.
        metric: The figure that the gate compares: with held-out text ``top1_recall`` or
            ``top3_recall``, else one that both bundles name and `models.figures` knows.
        held_out: UTF-8 text that no device trained on; None believes the bundles' own figures.
        people: For a bundle of which a part is each person's own: folder of personal files,
            ``.zip``, or the file of everybody's embeddings; copied.
        largest_loss: How much worse the figure may be: of a share in percentage points, of any
            other in per cent of the present one.

    Returns:
        The version, and what the gate found.

    Raises:
        GateError: If the figure is worse, or cannot be compared.
        ValueError: If the bundle is corrupt, unsigned where that is not accepted, or cannot run;
            or if another version came to be served while this one was measured.
        OSError: If the disk refuses; what was served goes on.
    """
    folder.check()
    settings = read_settings(folder.settings)
    sentences = None if held_out is None else read_held_out(held_out)
    one_file = people is not None and people.is_file() and kind_of(people) == "people"
    everybody, files = (people, None) if one_file else (None, people)
    with folder.promoting(), copied(folder, bundle, files, check=load_bundle) as incoming:
        if everybody is not None:
            shutil.copyfile(everybody, folder.everybody(incoming.name))
        new = load_version(folder, settings, incoming.name)
        check_people(
            folder.files_of_people(new.version), lambda client: load_person(folder, new, client)
        )
        version = version_name(new.manifest)
        versions = read_versions(folder)
        old, why_alone = load_present(
            partial(load_version, folder, settings),
            versions.present,
            offered=version,
            what="version",
        )
        before = None if old is None else _figure(folder, old, metric, sentences)
        figure = _figure(folder, new, metric, sentences)
        reason = judge(metric, before, figure, largest_loss=largest_loss, why_alone=why_alone)
        flush(folder, incoming)
        with folder.changing():
            changed = serve_from_now(folder, incoming, version, reason, instead_of=versions.present)
    return {"version": version, "before": changed.before, "gate": reason}


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


def _figure(
    folder: ServingFolder, model: ServedModel, metric: str, sentences: list[list[str]] | None
) -> float:
    """Return a version's figure, measured here or believed."""
    if sentences is not None:
        if metric not in ("top1_recall", "top3_recall"):
            raise GateError(f"metric must be top1_recall or top3_recall with text, got {metric!r}")
        recalls = [
            measure_recall(own, model.vocabulary, sentences, follow=partial(_shown, model.version))
            for own in _sample(folder, model)
        ]
        figures = [
            one.top1_recall if metric == "top1_recall" else one.top3_recall for one in recalls
        ]
        return sum(figures) / len(figures)
    return believed_figure(
        metric,
        model.manifest.metrics,
        round_number=model.manifest.round_number,
        otherwise="; or give held-out text with --held-out",
    )


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


def _sample(folder: ServingFolder, model: ServedModel) -> list[NextWordGraph]:
    """Return everyone's model, or the models of a few people; the same people for every version."""
    if model.manifest.personal is None:
        return [model.graph]
    files = folder.files_of_people(model.version)
    names = sorted(path.stem for path in files if path.suffix == ".zip")
    if model.made is not None:
        made = [name for name in model.made.names if name not in names][:_JUDGED_PEOPLE]
        judged = sorted([*names, *made])[:_JUDGED_PEOPLE]
        return [
            load_person(folder, model, name) if name in names else model.made.graph_of(name)
            for name in judged
        ]
    if not names:
        raise GateError(
            f"version {model.version} has no personal files to measure; give --people, or judge by "
            "the bundles' own figures without --held-out"
        )
    return [load_person(folder, model, name) for name in names[:_JUDGED_PEOPLE]]
