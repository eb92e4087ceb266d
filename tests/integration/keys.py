"""Keys made once for a test process: an RSA key takes up to a second, and a test needs many."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from privacy.identities.party import Identity


def lay_out_keys(identity: Path, owner: int) -> None:
    """Put pending keys into an identity folder: the same for the same owner.

    Args:
        identity: The folder; made here.
        owner: Number of the party within one test; two parties of a test never share keys.
    """
    kept = _pool() / str(owner)
    if not kept.exists():
        Identity.create_requests(kept, "party")
    identity.mkdir(mode=0o700, parents=True)
    shutil.copytree(kept / "pending", identity / "pending")


@cache
def _pool() -> Path:
    """Return this process's folder of keys; it goes with the run of the tests."""
    return Path(tempfile.mkdtemp(prefix="keys-"))
