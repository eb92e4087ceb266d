"""Read a kustomization and what it lists, with the few of kustomize's words that ours use.

A word that is not among them is refused: this reader must not pass over what `kubectl` acts on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_WORDS = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "images", "patches"}
_WORKLOADS = ("Deployment", "StatefulSet", "Job")

# Any: an object as its file has it; `schemas.py` says what may stand where.
Body = dict[str, Any]


class KustomizationError(Exception):
    """Raised when a folder has no kustomization that this reader understands."""


@dataclass(frozen=True)
class Manifest:
    """One object, and the file that it stands in."""

    path: Path
    body: Body

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.body.get("kind"))

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body.get("metadata", {}).get("name"))

    @property
    def where(self) -> str:
        """Its file and what it is, for a line about it."""
        return f"{self.path.parent.name}/{self.path.name}: {self.kind} {self.name}"

    @property
    def pod(self) -> Body | None:
        """The template of the pods that it makes, or None."""
        return self.body["spec"]["template"] if self.kind in _WORKLOADS else None


def read(folder: Path) -> list[Manifest]:
    """Return the objects of a kustomization, patched.

    Raises:
        KustomizationError: If a file is missing or no YAML, or kustomize would do more with it.
    """
    asked = _only(folder / "kustomization.yaml")
    if unknown := asked.keys() - _WORDS:
        raise KustomizationError(f"{folder}: this check does not know {', '.join(sorted(unknown))}")
    found: list[Manifest] = []
    for name in asked.get("resources", ()):
        path = (folder / name).resolve()
        found += read(path) if path.is_dir() else list(_objects(path))
    for made in asked.get("configMapGenerator", ()):
        found.append(_config_map(folder, made))
    for patch in asked.get("patches", ()):
        for change in _objects(folder / patch["path"]):
            found = _patched(found, change)
    if namespace := asked.get("namespace"):
        found = [_placed(manifest, namespace) for manifest in found]
    return found


def containers(pod: Body) -> Iterator[Body]:
    """Yield every container of a pod's template, those that only begin it first."""
    yield from pod["spec"].get("initContainers", ())
    yield from pod["spec"]["containers"]


def _only(path: Path) -> Body:
    (asked,) = _documents(path)
    return asked


def _objects(path: Path) -> Iterator[Manifest]:
    return (Manifest(path, body) for body in _documents(path))


def _documents(path: Path) -> list[Body]:
    try:
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise KustomizationError(f"{path} cannot be read: {error}") from None


def _config_map(folder: Path, made: Body) -> Manifest:
    data = {Path(name).name: (folder / name).read_text(encoding="utf-8") for name in made["files"]}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": made["name"]},
        "data": data,
    }
    return Manifest(folder / "kustomization.yaml", body)


def _patched(found: list[Manifest], change: Manifest) -> list[Manifest]:
    targets = [one for one in found if (one.kind, one.name) == (change.kind, change.name)]
    if len(targets) != 1:
        raise KustomizationError(f"{change.where} must change one object, found {len(targets)}")
    patched = Manifest(targets[0].path, _merged(targets[0].body, change.body))
    return [patched if one is targets[0] else one for one in found]


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> Body:
    """Return a strategic merge of objects whose lists are replaced as a whole."""
    return {
        **old,
        **{
            key: _merged(old[key], value)
            if isinstance(value, dict) and isinstance(old.get(key), dict)
            else value
            for key, value in new.items()
        },
    }


def _placed(manifest: Manifest, namespace: str) -> Manifest:
    if manifest.kind == "Namespace":
        return manifest
    metadata = {**manifest.body.get("metadata", {}), "namespace": namespace}
    return Manifest(manifest.path, {**manifest.body, "metadata": metadata})
