"""The one folder in which a device keeps what must survive a restart.

``identity/`` holds keys and certificates, ``enrolment.json`` whom they belong to, ``client.toml``
and ``floor.toml`` what the device's owner allows, ``outbox/`` a sealed update in waiting,
``personal/`` the device's own model, ``work/`` what can be thrown away at any time.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edge_client.folder.held_release import HeldRelease
from edge_client.folder.outbox import Outbox
from edge_client.folder.personal_folder import PersonalFolder
from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.bounded_files import FileTooLargeError, read_bounded
from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, read_json

_LONGEST_NOTE_BYTES = 64 << 10


class DeviceFolderError(Exception):
    """Raised when a device folder cannot be used; the text says what to do."""


class Enrolment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The federation that a device belongs to, and the device's name there.

    ``run`` is 32 hex digits, ``device_address`` ``host:port``, and ``ca_certificate`` DER, as is
    ``helper_certificate``, that of the helper which the invite named, if it named one.
    ``other_device_addresses`` are where the coordinator may be found besides, if the invite said.
    """

    client_name: str
    run: str
    device_address: str
    ca_certificate: bytes
    helper_certificate: bytes = b""
    # Absent, not empty: software from before it refuses what it does not know.
    other_device_addresses: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def device_addresses(self) -> tuple[str, ...]:
        """Return every listener for enrolled devices, the preferred one first."""
        others = self.other_device_addresses
        return (self.device_address, *(() if isinstance(others, msgspec.UnsetType) else others))


class CoordinatorKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The certificates, DER, of the newest keys of the coordinator that this device has met.

    Updates are sealed to ``wrapping``, ``signing`` checks models, and whoever answers at the
    coordinator's address must have the key of ``tls``, which is empty until it is first met.
    """

    tls: bytes = b""
    wrapping: bytes
    signing: bytes


class DeviceFolder:
    """The parts of a device folder; ``personal`` and ``example_ledger`` are never sent.

    ``work`` is worthless after a restart, and ``word_lists`` are public lists by digest. ``held``
    has the last release, where the next may come as what changed since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = path / "identity"
        self.client_settings = path / "client.toml"
        self.floor = path / "floor.toml"
        self.work = path / "work"
        self.optimiser = path / "optimiser"
        self.word_lists = path / "word_lists"
        self.example_ledger = path / "example_privacy.json"
        self.personal = PersonalFolder(path / "personal")
        self.held = HeldRelease(path / "held")
        self._enrolment = path / "enrolment.json"
        self._travel = path / "travel.txt"
        self._adapted = path / "adapted.txt"
        self._refused = path / "refused.txt"
        self._plan = path / "plan.json"
        self._signed_plan = path / "signed_plan.json"
        self._coordinator = path / "coordinator.json"

    @property
    def is_enrolled(self) -> bool:
        """Whether the folder says whom its keys belong to; those may have expired."""
        return self._enrolment.exists()

    def create(self) -> None:
        """Make the folder, owner-only, if it is missing."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def save(self, enrolment: Enrolment) -> None:
        """Write the enrolment: from here on, the device can check in."""
        write_atomically(self._enrolment, msgspec.json.encode(enrolment))

    def note_plan(self, encoded: bytes) -> None:
        """Keep the plan of the newest round that was accepted, as JSON bytes."""
        _note(self._plan, encoded, flush=True)

    def plan(self) -> bytes:
        """Return the plan of the newest round that was accepted, as JSON bytes.

        Raises:
            DeviceFolderError: If there was none yet, or the file is larger than plans are.
        """
        try:
            return read_bounded(self._plan, LARGEST_RECORD_BYTES)
        except FileNotFoundError:
            raise DeviceFolderError(
                f"{self.path} has seen no round yet; let the device take part in one first"
            ) from None
        except FileTooLargeError as error:
            raise DeviceFolderError(f"{self._plan} cannot be read: {error.strerror}") from None

    def note_signed_plan(self, encoded: bytes) -> None:
        """Keep the proof of what the coordinator asked for in the newest accepted lease.

        What was refused before it is no longer the newest plan.
        """
        _note(self._signed_plan, encoded, flush=False)
        self._refused.unlink(missing_ok=True)

    def signed_plan(self) -> bytes | None:
        """Return what `note_signed_plan` kept, or None before the first lease.

        Raises:
            DeviceFolderError: If the file is larger than what was kept there.
        """
        try:
            return read_bounded(self._signed_plan, LARGEST_RECORD_BYTES)
        except FileNotFoundError:
            return None
        except FileTooLargeError as error:
            told = f"{self._signed_plan} cannot be read: {error.strerror}"
            raise DeviceFolderError(told) from None

    def save_coordinator(self, keys: CoordinatorKeys) -> None:
        """Replace the coordinator's certificates, which the caller has checked."""
        write_atomically(self._coordinator, msgspec.json.encode(keys))

    def coordinator(self) -> CoordinatorKeys:
        """Return the coordinator's certificates.

        Raises:
            DeviceFolderError: If the file is missing or was changed.
        """
        try:
            return read_json(self._coordinator, CoordinatorKeys, at_most=LARGEST_RECORD_BYTES)
        except (FileNotFoundError, msgspec.DecodeError) as error:
            raise DeviceFolderError(f"{self._coordinator} cannot be read: {error}") from None

    def known_coordinator(self) -> CoordinatorKeys | None:
        """Return the coordinator's certificates, or None before the first; errors as above."""
        return self.coordinator() if self._coordinator.exists() else None

    def enrolment(self) -> Enrolment:
        """Return whom the device's keys belong to.

        Raises:
            DeviceFolderError: If the device is not enrolled, or the file was changed.
        """
        try:
            return read_json(self._enrolment, Enrolment, at_most=LARGEST_RECORD_BYTES)
        except FileNotFoundError:
            raise DeviceFolderError(
                f"{self.path} is not enrolled; run: sotto-client enrol {self.path} --invite FILE"
            ) from None
        except msgspec.DecodeError as error:
            raise DeviceFolderError(f"{self._enrolment} cannot be read: {error}") from None

    def note_travel(self, travel: str) -> None:
        """Keep what travelled in the last round, in words; it is nothing that must survive."""
        _note(self._travel, travel.encode(), flush=False)

    def travel(self) -> str | None:
        """Return what travelled in the last round, or None before the first.

        Raises:
            DeviceFolderError: If the file is larger than what was kept there.
        """
        return _noted(self._travel)

    def note_adapted(self, words: str) -> None:
        """Keep what came of the newest adaptation, in words; it is nothing that must survive."""
        _note(self._adapted, words.encode(), flush=False)

    def adapted(self) -> str | None:
        """Return what came of the newest adaptation, or None where there was none.

        Raises:
            DeviceFolderError: If the file is larger than what was kept there.
        """
        return _noted(self._adapted)

    def note_refused(self, words: str) -> None:
        """Keep why this device refused the newest plan, in words, until it takes one."""
        _note(self._refused, words.encode()[:_LONGEST_NOTE_BYTES], flush=False)

    def refused(self) -> str:
        """Return why this device refused the newest plan; empty if it did not.

        Raises:
            DeviceFolderError: If the file is larger than what was kept there.
        """
        return _noted(self._refused) or ""

    def outbox(self) -> Outbox:
        """Return the place for a sealed update in waiting."""
        return Outbox(self.path / "outbox")

    def empty_work(self) -> None:
        """Throw away what an earlier process left half-done."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(mode=0o700)

    def keep_work_of(self, nonce: bytes) -> None:
        """Throw away what was fetched for any other lease; what is half-done for this one stays."""
        for path in self.work.iterdir():
            if path.stem != nonce.hex():
                path.unlink()

    @contextlib.contextmanager
    def sole_agent(self) -> Iterator[None]:
        """Hold the folder for one agent.

        Raises:
            DeviceFolderError: If another agent runs on it.
        """
        descriptor = os.open(self.path / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # The lock goes with the process, so kill -9 leaves nothing to clean up.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DeviceFolderError(f"another sotto-client runs on {self.path}") from None
        try:
            yield
        finally:
            os.close(descriptor)


def _note(path: Path, content: bytes, *, flush: bool) -> None:
    """Put ``content`` at ``path`` unless it lies there already: most rounds are like the last."""
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content, flush=flush)


def _noted(path: Path) -> str | None:
    try:
        return read_bounded(path, _LONGEST_NOTE_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None
    except FileTooLargeError as error:
        raise DeviceFolderError(f"{path} cannot be read: {error.strerror}") from None
