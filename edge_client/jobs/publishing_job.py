"""Ask the process that publishes a personal part, and understand its answer. No torch."""

import subprocess
import sys
from pathlib import Path

import msgspec


class PublishingError(Exception):
    """Raised when a personal part could not be written; the text says why."""


class PublishingJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file to publish; an existing target is replaced. The passphrase opens the key files."""

    device_folder: str
    target: str
    passphrase: bytes | None = None


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The personal tensors' names and the size of the published file."""

    tensors: tuple[str, ...]
    size_bytes: int


def publish_elsewhere(folder: Path, target: Path, passphrase: bytes | None) -> Published:
    """Write a device's personal part, in a process of its own.

    Raises:
        PublishingError: If it could not be written.
    """
    job = PublishingJob(
        device_folder=str(folder.absolute()), target=str(target.absolute()), passphrase=passphrase
    )
    done = subprocess.run(
        (sys.executable, "-P", "-m", "edge_client.child.publishing"),
        input=msgspec.json.encode(job),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        raise PublishingError(told[-1] if told else f"it ended with status {done.returncode}")
    return msgspec.json.decode(done.stdout, type=Published)
