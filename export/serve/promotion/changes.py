"""The steps that every change of a served version takes, of a keyboard and of a voice alike."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from export.people.personal_file import PersonalFile, TakesPerson
from export.serve.folder.copies import copied, flush, keep, remove_all_but
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.tokens import checked_client
from export.serve.folder.versions import Versions, read_versions, version_name, write_versions
from export.serve.loaded.keyboard_version import ServedModel
from export.serve.loaded.voice_version import ServedVoice
from export.serve.promotion.carried import CarriedPeople
from export.serve.promotion.gate import judge
from privacy.foundation.atomic_files import write_atomically

V = TypeVar("V", ServedModel, ServedVoice)
L = TypeVar("L")


class Versioned(Protocol[V]):
    """Keyboards or voices of a folder, and a bundle that is to be one: how they load and compare.

    Attributes:
        what: The name of a version in messages.
        files: Folders of personal files that were given with the bundle.
        check_bundle: Refuses what is no bundle of this kind; raises ValueError.
    """

    what: str
    shelf: ServingFolder
    files: Sequence[Path]
    check_bundle: Callable[[Path], object]

    def load(self, version: str) -> V:
        """Load a version as a server would; ValueError or OSError if it cannot be."""

    def load_copy(self, copy: str) -> V:
        """Load a copy that is to become a version, and check the people given beside it."""

    def check_of_carried(self, new: V, present: str | None) -> Callable[[Path], object]:
        """Return what refuses a file of the present version that is of no use beside the copy."""

    def measure(
        self, metric: str, new: V, version: str, present: str | None
    ) -> tuple[float | None, float, str]:
        """Return the present version's figure, the copy's, and why there is none of the present.

        Args:
            version: The name that the copy is to have.
            present: The version that is served; None if none is.

        Raises:
            GateError: If a figure is missing, or cannot be compared.
            ServingError: If the present version is what is offered, and is whole.
        """


def check_people(files: Iterable[Path], load: Callable[[str], object]) -> None:
    """Check that every personal file given with a bundle, ``CLIENT.zip``, can be used.

    ``load`` loads a client's file as a server would, and raises BundleError. Raise ServingError if
    something else lies among the files.
    """
    for path in sorted(files):
        if path.suffix != ".zip" or not path.is_file():
            raise ServingError(f"{path.name} must be CLIENT.zip, a personal file")
        load(checked_client(path.stem))


def load_present(
    load: Callable[[str], L], present: str | None, *, offered: str, what: str
) -> tuple[L | None, str]:
    """Return the present version to compare with, or None and why it cannot be loaded.

    A copy that was damaged can be compared with nothing, and the next promotion is what repairs it:
    another version's, or its own again. Raise ServingError if the version offered is the present
    one, and that is whole. ``load`` loads a version as a server would.
    """
    if present is None:
        return None, f"no {what} was served before"
    try:
        loaded = load(present)
    except (ValueError, OSError) as error:
        return None, f"the present {what} {present} cannot be loaded: {error}"
    if offered == present:
        raise ServingError(f"{what} {present} is served already")
    return loaded, ""


def put_people(
    shelf: ServingFolder,
    served: ServedModel | ServedVoice,
    files: Sequence[tuple[Path, PersonalFile]],
    shared: TakesPerson,
) -> list[str]:
    """Put people's files beside a version, none before all are checked; return whose they are.

    Args:
        files: Each file, and what it holds.
        shared: The version's shared part, onto which the files must go.

    Raises:
        ServingError: If a client's name is no name.
        BundleError: If a file is not of this version.
    """
    for _, own in files:
        own.on(shared, served.manifest)
    names = [checked_client(own.manifest.client) for _, own in files]
    shelf.people(served.version).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, (path, _) in zip(names, files, strict=True):
        write_atomically(shelf.person(served.version, name), path.read_bytes())
    return names


def serve_from_now(
    shelf: ServingFolder, incoming: Path, version: str, reason: str, *, instead_of: str | None
) -> Versions:
    """Serve a copy that was judged, and remove the versions that nobody is answered from any more.

    ``reason`` is the gate's finding in words, ``instead_of`` the version that the copy was compared
    with; None if nothing was served.

    Raises:
        ServingError: If another version is served by now.
        OSError: If the disk refuses; what was served goes on, and nothing of the copy stays.
    """
    served = read_versions(shelf)
    if served.present != instead_of:
        raise ServingError(
            f"{version} was compared with {instead_of}, but {served.present} is served by now; "
            "promote again to compare with that"
        )
    changed = served.changed("promote", version, reason)
    try:
        keep(shelf, incoming, version)
        write_versions(shelf, changed)
        served = changed
    finally:
        remove_all_but(shelf, served.still_needed(datetime.now(UTC)))
    return served


def promote_on(
    folder: ServingFolder,
    versioned: Versioned[V],
    bundle: Path,
    *,
    metric: str,
    largest_loss: float,
) -> dict[str, object]:
    """Serve a bundle from now on, if it passes the gate (``promotion.keyboard.promote``)."""
    shelf, files, what = versioned.shelf, versioned.files, versioned.what
    with (
        folder.promoting(),
        copied(shelf, bundle, files, check=versioned.check_bundle) as incoming,
    ):
        new = versioned.load_copy(incoming.name)
        version = version_name(new.manifest)
        versions = read_versions(shelf)
        present = versions.present
        carried = CarriedPeople(
            shelf,
            incoming.name,
            versioned.check_of_carried(new, present),
            files_are_given=bool(files),
        )
        carried.follow(present)
        before, figure, why_alone = versioned.measure(metric, new, version, present)
        reason = judge(
            metric, before, figure, largest_loss=largest_loss, what=what, why_alone=why_alone
        )
        flush(shelf, incoming)
        with folder.changing():
            carried.follow(present)
            changed = serve_from_now(shelf, incoming, version, reason, instead_of=present)
    return {"version": version, "before": changed.before, "gate": reason, **carried.report()}


def go_back(folder: ServingFolder, versioned: Versioned[V], *, reason: str) -> dict[str, object]:
    """Serve the version before again; the present one is then the one before.

    Raise ServingError if there is none, ValueError if its bundle is no longer what it was.
    """
    shelf = versioned.shelf
    with folder.changing():
        versions = read_versions(shelf)
        if versions.before is None:
            raise ServingError(f"there is no {versioned.what} before the present one to go back to")
        # A version that is gone is not gone back to.
        versioned.load(versions.before)
        write_versions(shelf, versions.changed("rollback", versions.before, reason))
    return {"version": versions.before, "before": versions.present}
