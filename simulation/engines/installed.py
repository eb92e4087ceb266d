"""What is installed on a machine, as far as it decides the bits of a result.

Every node of a cluster trains with its own copy of sotto and torch. Another version, or a file that
somebody edited on one node, would give other bits without a word, so nodes are compared first.
"""

import hashlib
import platform
import socket
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from protos.version import VERSION

Installed = Mapping[str, str]
"""Names of what is installed, and their versions."""

_PACKAGES = ("protos", "privacy", "models", "server", "edge_client", "simulation")
_HOST = "host"


def installed() -> dict[str, str]:
    """Return the versions of Python, sotto, its sources and torch on this machine, and its name."""
    return {
        _HOST: socket.gethostname(),
        "Python": platform.python_version(),
        "sotto": VERSION,
        "sotto's sources": _sources_sha256()[:12],
        "torch": version("torch"),
    }


def difference(ours: Installed, node: Installed) -> str | None:
    """Return one line that names what differs on a node from here, or None if nothing does."""
    differing = [
        f"{name} {theirs} there, {ours[name]} here"
        for name, theirs in node.items()
        if name != _HOST and theirs != ours.get(name)
    ]
    if not differing:
        return None
    return f"node {node.get(_HOST, '?')} differs from this machine: {'; '.join(differing)}"


def _sources_sha256() -> str:
    """Digest every module that may take part in training, by its place and bytes."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for path in sorted(_sources(root)):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _sources(root: Path) -> Iterable[Path]:
    for package in _PACKAGES:
        yield from (root / package).rglob("*.py")
