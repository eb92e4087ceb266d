"""Carry people's files over from the present version to the copy that is to take its place.

A file goes onto any bundle of its run, method and schema. Files given with the bundle replace all
of their kind, personal files or everybody's embeddings; the other kind is carried over, and what
stays behind is reported.
"""

import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from export.bundles.manifest_entries import BundleError
from export.people.people_file import load_people_file
from export.people.personal_file import load_personal_file
from export.serve.folder.file_stamps import FileStamp, stamp_of
from export.serve.folder.folder import ServingFolder

_TOLD = 3


class CarriedPeople:
    """Files that were not given with a copy, carried from beside the present version."""

    def __init__(
        self,
        shelf: ServingFolder,
        copy: str,
        check: Callable[[Path], object],
        *,
        files_are_given: bool,
    ) -> None:
        """Begin with nothing but what was given, which lies beside the copy.

        Args:
            check: Given a file that was put beside the copy, raises ValueError if it is of no use
                there.
            files_are_given: Whether all personal files were; then none is carried.
        """
        self._shelf = shelf
        self._target = shelf.people(copy)
        self._everybody = shelf.everybody(copy).name
        self._check = check
        self._files_are_given = files_are_given
        self._given = {path.name for path in self._target.glob("*")}
        self._seen: dict[str, FileStamp] = {}
        self._left: dict[str, str] = {}

    def follow(self, present: str | None) -> None:
        """Carry over what came, changed or went beside the served version since the last time."""
        found = set() if present is None else set(self._shelf.people(present).glob("*"))
        for name in self._seen.keys() - {path.name for path in found}:
            self._drop(name)
        for path in sorted(found):
            if path.name not in self._given:
                self._carry(path)

    def report(self) -> dict[str, object]:
        """Return how many files were carried over, how many were not, and why; nothing if none."""
        if not self._seen:
            return {}
        told = [f"{name}: {why}" for name, why in sorted(self._left.items())]
        because = "; ".join(told[:_TOLD]) + ("; and so on" if told[_TOLD:] else "")
        left = {"because": because} if told else {}
        return {"carried": len(self._seen) - len(told), "not_carried": len(told), **left}

    def _carry(self, path: Path) -> None:
        target = self._target / path.name
        stamp = stamp_of(path)
        if stamp is not None and self._seen.get(path.name) == stamp:
            return
        self._drop(path.name)
        if stamp is None:  # It was taken away just now.
            return
        try:
            self._seen[path.name] = stamp
            if self._files_are_given and path.name != self._everybody:
                raise BundleError("is not among the personal files that were given")
            shutil.copyfile(path, target)
            self._check(target)
        except FileNotFoundError:  # Or now.
            self._drop(path.name)
        except ValueError as error:
            target.unlink(missing_ok=True)
            self._left[path.name] = str(error)

    def _drop(self, name: str) -> None:
        self._seen.pop(name, None)
        self._left.pop(name, None)
        (self._target / name).unlink(missing_ok=True)


def named_in(everybody: Path) -> set[str] | None:
    """Return the clients in a version's file of embeddings: none without one, None if spoilt."""
    if not everybody.exists():
        return set()
    try:
        return set(load_people_file(everybody).rows)
    except BundleError:
        return None


def check_beside_everybody(
    file: Path, named: Collection[str], named_before: Collection[str]
) -> None:
    """Raise BundleError unless a personal file still counts beside new embeddings of everybody.

    A coordinator's file is older than what is made now; one that its owner published takes
    precedence,
    unless they left.
    """
    own = load_personal_file(file).manifest
    if own.client in named and own.origin == "generated":
        raise BundleError("everybody's file that was given makes it anew")
    if own.client in named_before and own.client not in named:
        raise BundleError(f"everybody's file that was given no longer names {own.client}")
