"""The places of everything of one federation below its folder."""

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from server.records.tenure import Tenure


@dataclass(frozen=True)
class ServerFolder:
    """The files of one coordinator, below an owner-only ``root``."""

    root: Path

    @property
    def config(self) -> Path:
        """The operator's settings."""
        return self.root / "federation.toml"

    @property
    def authority(self) -> Path:
        """The authority's certificate, its issuing key and, unless taken away, its own key."""
        return self.root / "authority"

    @property
    def former_authority(self) -> Path:
        """The folder of the authority before, for the operator to destroy."""
        return self.root / "authority.former"

    @property
    def identity(self) -> Path:
        """The coordinator's own keys and certificates."""
        return self.root / "identity"

    @property
    def lease_secret(self) -> Path:
        """The secret from which the nonces of leases are derived."""
        return self.root / "lease.secret"

    @property
    def noise_secret(self) -> Path:
        """Opens the sealed secret of a tree of noise; there in mode ``ftrl`` only."""
        return self.root / "noise.secret"

    @property
    def uploads(self) -> Path:
        """Uploads that are not complete or not committed."""
        return self.root / "uploads"

    @property
    def parts(self) -> Path:
        """Parts of the model generated for one device each, sealed, until their round ends."""
        return self.root / "parts"

    @property
    def updates(self) -> Path:
        """Committed updates, sealed, until their round ends."""
        return self.root / "updates"

    @property
    def releases(self) -> Path:
        """One folder for each round's signed model."""
        return self.root / "releases"

    @property
    def metrics(self) -> Path:
        """One JSON line for each round."""
        return self.root / "metrics.jsonl"

    @property
    def pause_mark(self) -> Path:
        """Exists while the operator has paused the run; so a restart stays paused."""
        return self.root / "paused"

    @property
    def helper(self) -> Path:
        """The certificates of the helper that sums masks; there in mode ``masked`` only."""
        return self.root / "helper.json"

    @property
    def helper_answers(self) -> Path:
        """Every answer of the helper, as it signed them."""
        return self.root / "helper-answers.jsonl"

    @property
    def lock(self) -> Path:
        """Locked by the process that runs the coordinator, where one machine alone can."""
        return self.root / "lock"

    @property
    def shared_word(self) -> Path:
        """Holds what a coordinator that stands by asked the leader to write, and then reads."""
        return self.root / "shared.word"


def take_uploads(root: ServerFolder, tenure: Tenure) -> Path:
    """Return this term's folder of uploads, into which those of earlier terms were moved.

    A process that led before finds none of them at their former names.
    """
    if not tenure.term:
        return root.uploads
    root.uploads.mkdir(mode=0o700, exist_ok=True)
    own = root.uploads / tenure.named("uploads")
    own.mkdir(mode=0o700, exist_ok=True)
    for former in [root.uploads, *root.uploads.glob("uploads-t*")]:
        if not tenure.is_before(former.name):
            continue
        for upload in former.glob("*.part"):
            with contextlib.suppress(FileNotFoundError):
                upload.rename(own / upload.name)
        if former != root.uploads:
            shutil.rmtree(former, ignore_errors=True)
    return own


def take_parts(root: ServerFolder, tenure: Tenure) -> Path:
    """Return this term's folder of generated parts; those of earlier terms are deleted."""
    if not tenure.term:
        return root.parts
    for former in root.parts.glob("*"):
        if former.is_dir() and tenure.is_before(former.name):
            shutil.rmtree(former, ignore_errors=True)
    return root.parts / tenure.named("parts")


def without_noise_secret(root: ServerFolder) -> str:
    """Say how a run of mode ``ftrl`` goes on whose folder came back without ``noise.secret``."""
    return (
        "if no round was released after the backup, as when a run moves to another machine, copy "
        "noise.secret here from the old folder, and never run that one again; otherwise the same "
        "noise would hide other sums, and the difference of two models would show them: found a "
        f'new run with start_from = "{root.releases / "latest"}" in its settings, or with a later '
        "release of this run. Its ledger begins anew: for one person, its epsilon and delta come "
        "on top of what this run had spent by its last release"
    )
