"""Write the files of a release so that they are complete and on the disk before they are named.

They are flushed in ``.building-<round>/``. Publishing renames that folder to ``<round>/`` and then
moves the pointer ``latest``, so a crash leaves a whole release or none. Where machines share the
folder, the names of what is not published yet hold the term of whoever writes it: whoever takes
over publishes or removes it, and nothing is left that its writer could rename late.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from models.plan.plan import Plan, decode_plan, released_schema
from models.plan.release_record import (
    PARAMETERS_FILE,
    PERSONALISATION_FILE,
    PLAN_FILE,
    RECORD_FILE,
    SIGNATURE_FILE,
    SIGNER_FILE,
    VOCABULARY_FILE,
    Metric,
    ReleaseError,
    ReleaseRecord,
    check_release_files,
    decode_release_record,
    digests_of,
)
from models.text.vocabulary import Vocabulary, decode_vocabulary
from models.vector.codec import FlatVector, Payload, decode, encode
from privacy.accounting.ledger_chain import LedgerEntry, NotedHead
from privacy.foundation.atomic_files import sync_folder
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose
from server.records.tenure import ALONE, Tenure
from server.releases.whole_folders import FORMER, put_in_place, write_flushed

_BUILDING = ".building-"
_REWRITING, _REWRITTEN = ".rewriting-", ".rewritten-"
_POINTERS = ("latest", "best")


@dataclass(frozen=True, kw_only=True)
class NewRelease:
    """The outcome of a round, or the initial parameters as round 0.

    Attributes:
        attempt: Attempt that succeeded, from 0.
        parameters: Flat float32 in schema order, shape ``(elements,)``.
        previous_sha256: Digest of the parameters the round started from, 32 bytes.
        guarantee: The noise mode's promise, in words.
        entry: Newest entry of the privacy ledger with the release, which adds it unless its attempt
            did; None for the initial parameters.
        personalisation: File of the method's server half; None if it keeps nothing between rounds.
    """

    round_number: int
    attempt: int
    plan: Plan
    vocabulary: Vocabulary | None
    parameters: FlatVector
    previous_sha256: bytes
    metrics: dict[str, Metric]
    guarantee: str
    entry: LedgerEntry | None = None
    personalisation: bytes | bytearray | None = None


@dataclass(frozen=True)
class StoredRelease:
    """A release as it was read, with its read-only shared parameters; see ``NewRelease``."""

    record: ReleaseRecord
    plan: Plan
    vocabulary: Vocabulary | None
    parameters: FlatVector
    personalisation: bytes | None = None

    def check_words(self, vocabulary: Vocabulary | None, *, instead: str) -> None:
        """Refuse to go on with other words: rows would stand for others without a sign of it.

        Args:
            instead: What else than putting the list back the error says to do.

        Raises:
            ReleaseError: If ``vocabulary`` is not the release's.
        """
        if vocabulary == self.vocabulary:
            return
        found, wanted = (
            "none" if words is None else f"one of {len(words)} words with digest {_short(words)}"
            for words in (self.vocabulary, vocabulary)
        )
        raise ReleaseError(
            f"the word list must be that of the run's newest release, {found}; the settings name "
            f"{wanted}. Its file or, with a new version, sotto's own list was changed: put it back,"
            f" or {instead}"
        )


def _short(words: Vocabulary) -> str:
    return words.sha256.hex()[:12]


class ReleaseFolder:
    """Every release of one run; the folder is made, owner-only, if missing."""

    def __init__(self, folder: Path, tenure: Tenure = ALONE) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._tenure = tenure

    def path(self, round_number: int) -> Path:
        """Return the folder of a round's release."""
        return self._folder / f"{round_number:06d}"

    def pointed(self, pointer: str) -> int | None:
        """Return the round that ``latest`` or ``best`` points to, or None."""
        link = self._folder / pointer
        return int(link.readlink().name) if link.is_symlink() else None

    def build(self, new: NewRelease, signer: Identity | None) -> ReleaseRecord:
        """Write and flush the files of a release, without naming it; without a signer, unsigned.

        Raises:
            CodecError: If the parameters do not fit the plan's model or are not finite.
            OSError: If the disk is full.
        """
        payload = encode(released_schema(new.plan), new.parameters)
        self.begin(new.round_number)
        self.write_parameters(new.round_number, payload)
        record = self.describe(new, signer, parameters_digest(new.parameters))
        self.complete(new.round_number)
        return record

    def begin(self, round_number: int) -> None:
        """Make the folder of a release, for the steps of ``build`` one by one.

        ``write_parameters`` and ``describe`` may run at the same time; ``complete`` comes last.
        Each raises OSError if the disk is full.
        """
        building = self._building(round_number)
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(mode=0o700)

    def write_parameters(self, round_number: int, payload: Payload) -> None:
        """Write and flush a release's parameters."""
        write_flushed(self._building(round_number), {PARAMETERS_FILE: payload})

    def describe(
        self, new: NewRelease, signer: Identity | None, parameters_sha256: bytes
    ) -> ReleaseRecord:
        """Write and flush what describes the parameters, whose ``parameters_digest`` is given."""
        described: dict[str, Payload] = {PLAN_FILE: new.plan.encode()}
        if new.vocabulary is not None:
            described[VOCABULARY_FILE] = new.vocabulary.to_bytes()
        if new.personalisation is not None:
            described[PERSONALISATION_FILE] = new.personalisation
        record = ReleaseRecord(
            run=new.plan.run,
            round=new.round_number,
            parameters_sha256=parameters_sha256.hex(),
            schema_sha256=new.plan.schema_sha256,
            previous_sha256=new.previous_sha256.hex(),
            metrics=new.metrics,
            guarantee=new.guarantee,
            ledger_sha256="" if new.entry is None else new.entry.sha256.hex(),
            files=digests_of(described),
        )
        encoded = record.encode()
        signature = {} if signer is None else signature_of(encoded, signer)
        building = self._building(new.round_number)
        write_flushed(building, {**described, RECORD_FILE: encoded, **signature})
        return record

    def complete(self, round_number: int) -> None:
        """Flush the names of a release's files, which are all written."""
        sync_folder(self._building(round_number))
        sync_folder(self._folder)

    def publish(self, round_number: int, term: int | None = None) -> Path:
        """Name a release that was built and point ``latest`` to it; repeating does no harm.

        ``term`` is that in which it was built; absent, this one.

        Raises:
            LeadershipLostError: If another process may have taken over.
            ReleaseError: If the release was neither built nor published.
        """
        target, building = self.path(round_number), self._building(round_number, term)
        if building.exists():
            # A folder of that name can only be left from before a restore.
            put_in_place(building, target)
        if not target.exists():
            raise ReleaseError(
                f"the files of round {round_number} are missing in {self._folder}; restore a backup"
            )
        self.point("latest", round_number)
        return target

    def point(self, pointer: str, round_number: int) -> None:
        """Move ``latest`` or ``best`` to a round, all at once; see ``Tenure.check``."""
        temporary = self._folder / f"{self._tenure.named(f'.{pointer}')}.new"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self.path(round_number).name)
        # The next leader removes it: a process that is stopped here renames nothing.
        self._tenure.check()
        temporary.replace(self._folder / pointer)
        sync_folder(self._folder)

    def discard_unpublished(self, keep: int | None, term: int | None = None) -> None:
        """Delete what was built and never recorded, except for one round's of a term.

        ``term`` is as in ``publish``. A folder of a later term is not this one's to delete.
        """
        kept = None if keep is None else self._building(keep, term)
        for building in self._folder.glob(f"{_BUILDING}*"):
            if building != kept and not self._tenure.is_after(building.name):
                shutil.rmtree(building)
        for pointer in _POINTERS:
            for late in self._folder.glob(f".{pointer}*.new"):
                if self._tenure.is_before(late.name):
                    late.unlink(missing_ok=True)

    def prune(self, keep: Collection[int]) -> None:
        """Delete every release but these rounds', at least one, later ones and those pointed at."""
        kept = {*keep, self.pointed("latest"), self.pointed("best")}
        for folder in self.published():
            number = int(folder.name)
            # A later one is of whoever took over.
            if number not in kept and number < max(keep):
                shutil.rmtree(folder)

    def published(self) -> list[Path]:
        """Return the folders of the releases that are kept, oldest first."""
        return sorted(self._folder.glob("[0-9]*"))

    def newest_head(self) -> NotedHead | None:
        """Return the head of the ledger in the newest record; None if there is none, or it is old.

        Raises:
            ReleaseError: If the record cannot be read.
        """
        for folder in reversed(self.published()):
            # A crash may leave a folder half deleted or half replaced, until the next start.
            with contextlib.suppress(FileNotFoundError):
                record = decode_release_record((folder / RECORD_FILE).read_bytes())
                return _noted(record)
        return None

    def begin_rewriting(self, round_number: int) -> Path:
        """Return an empty folder for all files of a release that is to be replaced."""
        building = self._rewriting(round_number)
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(mode=0o700)
        return building

    def end_rewriting(self, round_number: int) -> None:
        """Put the complete, flushed files in the release's place; a restart can repair it.

        Raises:
            LeadershipLostError: If another process may have taken over.
        """
        ready = self._folder / self._tenure.named(f"{_REWRITTEN}{round_number:06d}")
        shutil.rmtree(ready, ignore_errors=True)
        self._tenure.check()
        self._rewriting(round_number).rename(ready)
        sync_folder(self._folder)
        self.repair_rewriting()

    def repair_rewriting(self) -> None:
        """Finish replacements that a crash interrupted, and delete those it left half made."""
        for half_made in self._folder.glob(f"{_REWRITING}*"):
            if not self._tenure.is_after(half_made.name):
                shutil.rmtree(half_made)
        for ready in self._folder.glob(f"{_REWRITTEN}*"):
            if not self._tenure.is_after(ready.name):
                number = ready.name.removeprefix(_REWRITTEN).partition("-")[0]
                put_in_place(ready, self.path(int(number)))
        for former in self._folder.glob(f"[0-9]*/{FORMER}"):
            shutil.rmtree(former)
        sync_folder(self._folder)

    def read(self, round_number: int) -> StoredRelease:
        """Read a round's release and check it against its record; errors as in ``read_release``."""
        return read_release(self.path(round_number))

    def _building(self, round_number: int, term: int | None = None) -> Path:
        tenure = self._tenure if term is None else Tenure(term)
        return self._folder / tenure.named(f"{_BUILDING}{round_number:06d}")

    def _rewriting(self, round_number: int) -> Path:
        return self._folder / self._tenure.named(f"{_REWRITING}{round_number:06d}")


def read_release(folder: Path) -> StoredRelease:
    """Read the release in a folder and check it against its record.

    A pointer, such as ``latest``, is followed once, so all files are of one release.

    Raises:
        ReleaseError: If it is missing, or a file is not the one the record describes.
    """
    folder = folder.resolve()
    try:
        record = decode_release_record((folder / RECORD_FILE).read_bytes())
        check_release_files(folder, record)
        plan = decode_plan((folder / PLAN_FILE).read_bytes())
        vocabulary = None
        if plan.vocabulary is not None:
            vocabulary = decode_vocabulary((folder / VOCABULARY_FILE).read_bytes())
        parameters = decode(released_schema(plan), (folder / PARAMETERS_FILE).read_bytes())
        keeps_state = PERSONALISATION_FILE in record.files
        personalisation = (folder / PERSONALISATION_FILE).read_bytes() if keeps_state else None
    except OSError as error:
        raise ReleaseError(f"{folder} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ReleaseError(f"{folder}: {error}") from None
    if parameters_digest(parameters).hex() != record.parameters_sha256:
        raise ReleaseError(
            f"{folder / PARAMETERS_FILE} is not the file that {RECORD_FILE} describes"
        )
    return StoredRelease(record, plan, vocabulary, parameters, personalisation)


def _noted(record: ReleaseRecord) -> NotedHead | None:
    try:
        head = bytes.fromhex(record.ledger_sha256)
    except ValueError:
        raise ReleaseError(
            f"ledger_sha256 must be 64 hex digits, got {record.ledger_sha256!r} for round "
            f"{record.round}"
        ) from None
    return NotedHead(record.round, head) if head else None


def parameters_digest(parameters: FlatVector) -> bytes:
    """Return the SHA-256 of the parameters' little-endian float32 bytes, 32 bytes."""
    return hashlib.sha256(parameters.astype("<f4", copy=False).data).digest()


def signature_of(encoded: bytes, signer: Identity) -> dict[str, Payload]:
    """Return the files that sign a record, by name."""
    return {
        SIGNATURE_FILE: signer.sign(encoded, purpose=Purpose.RELEASE),
        SIGNER_FILE: signer.certificates.signing,
    }
