"""Hold what is served, keyboards or voices, and exchange it while requests are under way.

A request keeps the version it begins with, whatever happens on disk: all of it is in memory. A new
version is loaded and asked once before anybody gets it; if that fails, the old one goes on.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from export.serve.folder.folder import ServingFolder
from export.serve.folder.versions import read_versions

_LOG = logging.getLogger(__name__)

V = TypeVar("V")


class UnknownVersionError(ValueError):
    """Raised when a version is asked for that is not served."""


class NothingServedError(Exception):
    """Raised when no version has been promoted yet; the text says of what, and how to."""


@dataclass(frozen=True)
class _Served(Generic[V]):
    """Everything that is served at one moment, so that nobody sees half a change."""

    present: str | None = None
    versions: Mapping[str, V] = field(default_factory=dict)


class Shelf(Generic[V]):
    """The version that is served and the one before it; readers never wait."""

    def __init__(
        self, folder: ServingFolder, load: Callable[[str, V | None], V], *, what: str, allowed: str
    ) -> None:
        """Begin with nothing; ``reload`` fills it from the folder's ``versions.json``.

        Args:
            load: Given a version's name and what is held of it, or None, return it as it is to be
                served from now on; raises ValueError or OSError if it cannot be.
            what: The kind of the versions, for the error: ``keyboard`` or ``voice``.
            allowed: The name of a version, for the error, such as ``version must be one of``.
        """
        self._folder = folder
        self._load = load
        self._what = what
        self._allowed = allowed
        self._served = _Served[V]()

    @property
    def present(self) -> V:
        """Return the version that everyone gets; NothingServedError if there is none yet."""
        served = self._served
        if served.present is None:
            raise NothingServedError(
                f"no {self._what} is served here yet; promote one with `sotto-serve promote`"
            )
        return served.versions[served.present]

    @property
    def versions(self) -> list[str]:
        """Return the names of what is served, the present one first."""
        served = self._served
        return sorted(served.versions, key=lambda name: name != served.present)

    def version(self, name: str | None) -> V:
        """Return one version; None is the present one.

        Raise UnknownVersionError if it is not served, NothingServedError if none is.
        """
        if name is None:
            return self.present
        served = self._served
        if name not in served.versions:
            known = ", ".join(self.versions) or "none yet"
            raise UnknownVersionError(f"{self._allowed}: {known}; got {name[:80]!r}")
        return served.versions[name]

    def reload(self) -> None:
        """Serve what the folder says from now on, and forget what it no longer names.

        A version before that cannot be loaded any more is logged and not served. Raise ValueError
        or
        OSError if the present version cannot be served; what was served goes on.
        """
        wanted, held = read_versions(self._folder), self._served.versions
        versions: dict[str, V] = {}
        if wanted.present is not None:
            versions[wanted.present] = self._load(wanted.present, held.get(wanted.present))
        if wanted.before is not None and wanted.before not in versions:
            try:
                versions[wanted.before] = self._load(wanted.before, held.get(wanted.before))
            except (ValueError, OSError) as error:
                _LOG.warning("version %s, served before, is gone: %s", wanted.before, error)
        self._served = _Served(wanted.present, versions)
