"""Say where the operator's socket lies: in the folder, or on the machine if a folder is shared."""

import hashlib
import os
import tempfile
from pathlib import Path

from server.config.federation import FederationConfig
from server.records.folder import ServerFolder
from server.services.listeners import ListenError

_NAME = "sotto-server"
# The folder of `RuntimeDirectory=sotto-server` in a unit, or of a volume in a container.
_OF_SERVICE = Path("/run") / _NAME


def admin_socket(folder: ServerFolder, config: FederationConfig) -> Path:
    """Return the socket of the coordinator that runs on this machine, if one does.

    Where machines share a folder, each has a socket of its own, named after the folder too.

    Raises:
        ListenError: If the machine's place for it belongs to somebody else.
    """
    asked = Path(config.listen.admin_socket)
    if config.store.sqlite_path is not None or asked.is_absolute():
        return folder.root / asked
    name = hashlib.sha256(os.fsencode(folder.root.resolve())).hexdigest()[:16]
    return _local_folder() / f"{name}-{asked.name}"


def _local_folder() -> Path:
    """Return an owner-only folder of this machine: the service's, the session's or a temporary."""
    if os.access(_OF_SERVICE, os.W_OK | os.X_OK):
        return _OF_SERVICE
    session = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(session) / _NAME if session else Path(tempfile.gettempdir(), _of_user())
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o77 or folder.is_symlink():
        raise ListenError(
            f"{folder} must be an owner-only folder of this user, for the operator's socket; "
            "remove it, or set listen.admin_socket to a place on this machine"
        )
    return folder


def _of_user() -> str:
    return f"{_NAME}-{os.geteuid()}"
