"""A check that the packages of sotto come from one place.

The import names are everyday words (``models``, ``privacy``). If another distribution or a folder
on the path answered to one of them, half of the program would be someone else's code: each
command checks this before anything else.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

PACKAGES = ("protos", "privacy", "models", "server", "edge_client", "export", "simulation")


class InstallationError(RuntimeError):
    """Raised when an import name of sotto leads to another program's folder."""


def check_installation() -> None:
    """Raise InstallationError if the packages that can be imported lie in several folders."""
    home = Path(__file__).resolve().parents[2]
    for package in PACKAGES:
        for folder in _folders(_spec_of(package)):
            if folder.parent != home:
                raise InstallationError(
                    f"sotto's packages must share one folder: 'privacy' lies in {home}, but "
                    f"'{package}' is {folder}; rename that, start in another folder, or install "
                    "sotto into an environment of its own"
                )


def _spec_of(package: str) -> ModuleSpec | None:
    """Return where an import name leads, whether or not it is imported already."""
    try:
        return importlib.util.find_spec(package)
    except ValueError:
        # A module that a program made by itself has no origin.
        place = getattr(sys.modules[package], "__file__", None) or "a module made while running"
        return ModuleSpec(package, None, origin=place)


def _folders(spec: ModuleSpec | None) -> list[Path]:
    """Return the folders (or the single file) that an import name leads to."""
    if spec is None:
        return []
    places = list(spec.submodule_search_locations or [])
    if not places and spec.origin is not None:
        places = [spec.origin]
    return [Path(place).resolve() for place in places]
