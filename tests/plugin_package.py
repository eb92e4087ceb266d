"""Plugins as ``pip`` leaves them, without it: metadata in a folder of the path, and their code.

A loaded plugin stays in its process. ``installed`` gives a test a registry of its own, and
processes that the test forks get its path.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

import models.plugins.loaded

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"
EXAMPLE_PLUGIN = "sotto-spam-filter==1.0.0"

EntryPoints = Mapping[str, Mapping[str, str]]


def install(site: Path, package: str, version: str, entry_points: EntryPoints) -> None:
    """Write a package's metadata into a folder, as if it were installed there."""
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [
        line
        for group, entries in entry_points.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def example_entry_points() -> EntryPoints:
    """Return what the example's own pyproject.toml says."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    found: EntryPoints = project["entry-points"]
    return found


def install_example(site: Path, version: str = "1.0.0") -> None:
    install(site, "sotto-spam-filter", version, example_entry_points())


def on_path(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let this test, and what it forks, import from folders and load plugins afresh."""
    monkeypatch.setattr(models.plugins.loaded, "_LOADED", {})
    for folder in folders:
        monkeypatch.syspath_prepend(str(folder))


def use_example(monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    """Install the example plugin for this test."""
    install_example(site)
    on_path(monkeypatch, EXAMPLE, site)
