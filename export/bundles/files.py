"""Keep a bundle's few files in a folder or in a .zip, and read them back without trusting names.

Nothing is unpacked to disk. A file is read only under a permitted name, and a .zip only if its
members are stored uncompressed: then nothing read can be larger than the file that arrived. Folders
are made 0700 and files 0600, since a person's bundle is personal data.
"""

import io
import shutil
import stat
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from export.bundles.manifest_entries import BundleError
from models.vector.archives import ZIP_DAMAGE, open_zip

_OWNER_ONLY_FILE = 0o600
# A constant date keeps equal bundles equal, byte for byte; it is the first one .zip can hold.
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


class BundleFiles(Protocol):
    """The files of one bundle, read by name."""

    @property
    def names(self) -> frozenset[str]:
        """Return the names that are there, all of them permitted."""

    def read(self, name: str, *, limit_bytes: int) -> bytes:
        """Return a file; raise BundleError if it is missing, larger than the limit, or damaged."""


def write_files(target: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder, or replace a ``.zip`` in one step: all files or none.

    Raises:
        BundleError: If the target cannot be made there.
        OSError: If the disk refuses, FullDiskError if it is full; the old content is untouched.
    """
    from privacy.foundation.atomic_files import (
        write_atomically,  # A device that only reads goes without.
    )
    from privacy.foundation.full_disk import naming_the_disk

    check_target(target)
    with naming_the_disk(target.absolute().parent):
        if target.suffix == ".zip":
            write_atomically(target, _zipped(files), mode=_OWNER_ONLY_FILE)
        else:
            write_folder(target, files)


def check_target(target: Path) -> None:
    """Raise BundleError early if the parent folder is missing, or a folder of that name exists."""
    parent = target.absolute().parent
    if not parent.is_dir():
        raise BundleError(f"{parent} must be a folder; make it first")
    replaceable = target.suffix == ".zip" and target.is_file()
    if (target.exists() or target.is_symlink()) and not replaceable:
        raise BundleError(f"{target} exists; remove it, or choose another name or a .zip")


def open_files(source: Path, allowed: Collection[str]) -> BundleFiles:
    """Open a bundle's folder or ``.zip``, which may hold only the ``allowed`` names.

    Raises:
        BundleError: If nothing is there, or it holds another name, or one twice.
    """
    if source.is_dir():
        return _Folder(source, allowed)
    if source.is_file():
        return _Zip(source, allowed)
    raise BundleError(f"{source} must be a bundle folder or .zip, found nothing there")


class _Folder:
    def __init__(self, folder: Path, allowed: Collection[str]) -> None:
        self._folder = folder
        self.names = _checked_names(folder, (path.name for path in folder.iterdir()), allowed)

    def read(self, name: str, *, limit_bytes: int) -> bytes:
        path = self._folder / name
        if path.is_symlink() or not path.is_file():
            raise BundleError(f"{name} must be a regular file in the bundle")
        _check_size(name, path.stat().st_size, limit_bytes)
        return path.read_bytes()


class _Zip:
    def __init__(self, source: Path, allowed: Collection[str]) -> None:
        self._source = source
        try:
            with open_zip(source) as archive:
                members = archive.infolist()
        except ZIP_DAMAGE as error:
            raise BundleError(f"{source} must be a .zip: {error}") from None
        self.names = _checked_names(source, (member.filename for member in members), allowed)
        self._members = {member.filename: member for member in members}

    def read(self, name: str, *, limit_bytes: int) -> bytes:
        member = self._members.get(name)
        if member is None:
            raise BundleError(f"{name} must be in the bundle")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise BundleError(f"{name} must be stored as it is, not compressed; pack with zip -0")
        _check_size(name, member.file_size, limit_bytes)
        try:
            with open_zip(self._source) as archive:
                return archive.read(member)
        except ZIP_DAMAGE as error:
            raise BundleError(f"{name} cannot be read from the .zip: {error}") from None


def write_folder(target: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder of files, all or none, the owner's alone; names may have folders."""
    import tempfile

    from privacy.foundation.atomic_files import sync_folder, write_atomically

    parent = target.absolute().parent
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))  # mode 0700
    try:
        for name, content in files.items():
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(staging / name, content, mode=_OWNER_ONLY_FILE)
        staging.rename(target)
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    sync_folder(parent)


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name, _ZIP_DATE)
            member.external_attr = (stat.S_IFREG | _OWNER_ONLY_FILE) << 16
            archive.writestr(member, content)
    return buffer.getvalue()


def _checked_names(source: Path, names: Iterable[str], allowed: Collection[str]) -> frozenset[str]:
    listed = list(names)
    foreign = sorted(set(listed) - set(allowed))
    if foreign:
        raise BundleError(
            f"{source}: a bundle holds only {sorted(allowed)}, got {foreign[0][:80]!r}; one of "
            "another kind holds other files"
        )
    if len(set(listed)) != len(listed):
        raise BundleError(f"{source}: a bundle holds each file once, got {sorted(listed)}")
    return frozenset(listed)


def _check_size(name: str, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise BundleError(f"{name} must have at most {limit_bytes} bytes, got {size_bytes}")
