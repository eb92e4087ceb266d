"""Bring a new voice into service, or the one before it back.

A voice is judged by a figure such as the distance of its spectrograms from real ones, as both
bundles name it: what a server would have to measure that on is recordings, which it does not have.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from export.bundles.manifest_entries import BundleError
from export.bundles.speech_bundle import load_speech_bundle
from export.bundles.speech_manifest import SpeechManifest
from export.serve.folder.copies import copied, flush
from export.serve.folder.folder import ServingFolder
from export.serve.folder.settings import read_settings
from export.serve.folder.versions import read_versions, version_name
from export.serve.loaded.voice_version import ServedVoice, load_voice, voice_of
from export.serve.promotion.carried import CarriedPeople
from export.serve.promotion.changes import check_people, go_back, load_present, serve_from_now
from export.serve.promotion.gate import believed_figure, judge

METRIC = "perplexity"
"""What voices are compared by, unless another figure is named; of a voice it is e to the mel L1."""


def promote_voice(
    folder: ServingFolder,
    bundle: Path,
    *,
    metric: str = METRIC,
    people: Sequence[Path] = (),
    largest_loss: float,
) -> dict[str, object]:
    """Serve a voice from now on, if it passes the gate.

    Where the present voice cannot be loaded any more there is nothing to compare with, as with
    keyboards.

    Args:
        folder: The serving folder.
        bundle: Speech bundle folder or ``.zip``; copied.
        metric: The figure that the gate compares, which both bundles name and
        `models.tasks.figures`
            knows.
        people: Folders of personal files, ``.zip``, for a voice of which a part is each person's
            own; copied. Where none is given, the present voice's are carried over, as far as they
            fit.
        largest_loss: How much worse the figure may be: of a share in percentage points, of any
            other in per cent of the present one.

    Returns:
        The version, what the gate found, and how many people's files were carried over.

    Raises:
        GateError: If the figure is worse, or cannot be compared.
        ValueError: If the bundle is corrupt, unsigned where that is not accepted, or cannot run;
            or if another voice came to be served meanwhile.
        OSError: If the disk refuses; what was served goes on.
    """
    folder.check()
    settings, voices = read_settings(folder.settings), folder.voices
    with (
        folder.promoting(),
        copied(voices, bundle, people, check=load_speech_bundle) as incoming,
    ):
        new = load_voice(folder, settings, incoming.name)
        check_people(
            voices.people(new.version).glob("*"), lambda client: voice_of(folder, new, client)
        )
        version = version_name(new.manifest)
        versions = read_versions(voices)
        carried = CarriedPeople(
            voices, new.version, partial(_check_person, folder, new), files_are_given=bool(people)
        )
        carried.follow(versions.present)
        old, why_alone = load_present(
            lambda present: load_speech_bundle(voices.bundles / present).manifest,
            versions.present,
            offered=version,
            what="voice",
        )
        before = None if old is None else _figure(metric, old)
        figure = _figure(metric, new.manifest)
        reason = judge(
            metric, before, figure, largest_loss=largest_loss, what="voice", why_alone=why_alone
        )
        flush(voices, incoming)
        with folder.changing():
            carried.follow(versions.present)
            changed = serve_from_now(voices, incoming, version, reason, instead_of=versions.present)
    return {"version": version, "before": changed.before, "gate": reason, **carried.report()}


def roll_back_voice(folder: ServingFolder, *, reason: str) -> dict[str, object]:
    """Serve the voice before again; the present one is then the one before.

    Raises:
        ServingError: If there is none.
        ValueError: If its bundle is no longer what it was.
        OSError: If the disk refuses.
    """
    settings = read_settings(folder.settings)
    return go_back(
        folder,
        folder.voices,
        lambda version: load_voice(folder, settings, version),
        what="voice",
        reason=reason,
    )


def _check_person(folder: ServingFolder, voice: ServedVoice, file: Path) -> None:
    if voice.manifest.personal is None:
        raise BundleError("the new voice is the same for everyone")
    voice_of(folder, voice, file.stem)


def _figure(metric: str, manifest: SpeechManifest) -> float:
    return believed_figure(metric, manifest.metrics, round_number=manifest.round_number)
