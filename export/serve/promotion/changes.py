"""Do what every change of a served version takes, of a keyboard and of a voice alike."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from export.people.personal_file import PersonalFile
from export.serve.folder.copies import keep, remove_all_but
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.tokens import checked_client
from export.serve.folder.versions import Versions, read_versions, write_versions
from privacy.foundation.atomic_files import write_atomically

V = TypeVar("V")


def check_people(files: Iterable[Path], load: Callable[[str], object]) -> None:
    """Check that every personal file that came along with a bundle can be used.

    Args:
        files: CLIENT.zip each.
        load: Given a client, loads the file as a server would; raises BundleError.

    Raises:
        ServingError: If something else lies among them.
        BundleError: What ``load`` raises.
    """
    for path in sorted(files):
        if path.suffix != ".zip" or not path.is_file():
            raise ServingError(f"{path.name} must be CLIENT.zip, a personal file")
        load(checked_client(path.stem))


def load_present(
    load: Callable[[str], V], present: str | None, *, offered: str, what: str
) -> tuple[V | None, str]:
    """Return the present version to compare with; None, and why, where there is none to load.

    A copy that was damaged can be compared with nothing, and the next promotion is what repairs it:
    another version's, or its own again.

    Args:
        load: Loads a version as a server would.
        present: Its name; None if nothing is served.
        offered: The version that is to be served.
        what: What it is, for the words.

    Raises:
        ServingError: If the present version is what is offered, and is whole.
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
    version: str,
    files: Sequence[tuple[Path, PersonalFile]],
    check: Callable[[PersonalFile], object],
) -> list[str]:
    """Put people's files beside a version, none before all are checked; return whose they are.

    Args:
        shelf: Where the version is.
        version: Its name.
        files: Each file, and what it holds.
        check: Refuses a file that is not of this version; raises BundleError.

    Raises:
        ServingError: If a client's name is no name.
        BundleError: What ``check`` raises.
        OSError: If the disk refuses.
    """
    for _, own in files:
        check(own)
    names = [checked_client(own.manifest.client) for _, own in files]
    shelf.people(version).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, (path, _) in zip(names, files, strict=True):
        write_atomically(shelf.person(version, name), path.read_bytes())
    return names


def serve_from_now(
    shelf: ServingFolder, incoming: Path, version: str, reason: str, *, instead_of: str | None
) -> Versions:
    """Serve a copy that was judged, and remove the versions that nobody is answered from any more.

    Args:
        shelf: Where the versions are.
        incoming: The copy, beside them.
        version: Its name from now on.
        reason: What the gate found, in words.
        instead_of: The version that it was compared with; None if nothing was served.

    Returns:
        What is served from now on.

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


def go_back(
    folder: ServingFolder,
    shelf: ServingFolder,
    load: Callable[[str], object],
    *,
    what: str,
    reason: str,
) -> dict[str, object]:
    """Serve the version before again; the present one is then the one before.

    Args:
        folder: The serving folder.
        shelf: Where the versions are: the same folder, or that of its voices.
        load: Loads a version as a server would, so that one that is gone is not gone back to.
        what: What there is a version of, for the error.
        reason: Why, in words.

    Raises:
        ServingError: If there is none.
        ValueError: If its bundle is no longer what it was.
        OSError: If the disk refuses.
    """
    folder.check()
    with folder.changing():
        versions = read_versions(shelf)
        if versions.before is None:
            raise ServingError(f"there is no {what} before the present one to go back to")
        load(versions.before)
        write_versions(shelf, versions.changed("rollback", versions.before, reason))
    return {"version": versions.before, "before": versions.present}
