"""The helper's answers as the coordinator keeps them: one line each, in a file that only grows.

Whoever has this file and the helper's own list can compare them (`sotto-helper verify`). A line
that a crash cut short is dropped: its answer was not used yet, and is asked for again. All of it
blocks.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from privacy.foundation.atomic_files import sync_folder, write_chunks_atomically
from privacy.masking.helper_answer import (
    AnswerError,
    SignedAnswer,
    check_list,
    encode_line,
    read_answers,
)
from server.records.tenure import ALONE, Tenure


class HelperAnswers:
    """The durable list of answers of a run's helper.

    Attributes:
        newest: The last answer; None if there is none.
    """

    def __init__(
        self,
        path: Path,
        *,
        authorities: Sequence[bytes],
        run: bytes,
        tenure: Tenure = ALONE,
    ) -> None:
        """Read the list of a run, 16 bytes, whose file becomes another one in a new term.

        A process that led before and wakes up late appends to the former file, which nobody reads.

        ``authorities`` are certificates, DER: the federation's, and those it had before
        (`privacy.identities.succession.FormerAuthorities.root_certificates`).

        Raises:
            AnswerError: If a line was changed or is missing.
            OSError: If the file cannot be read or made.
        """
        self._path = path
        self._authorities = authorities
        self._run = run
        if not path.exists():
            path.touch(mode=0o600)
            sync_folder(path.parent)
        self._tenure = tenure
        if tenure.term:
            _replace(path, tenure)
        _drop_half_a_line(path, tenure)
        answers = read_answers(path)
        check_list(answers, authorities=authorities, run=run)
        self._digests = [answer.sha256 for answer in answers]
        self.newest: SignedAnswer | None = answers[-1] if answers else None

    def __len__(self) -> int:
        return len(self._digests)

    def holds(self, signed: SignedAnswer) -> bool:
        """Return whether an answer is in the list; AnswerError if another stands in its place."""
        sequence = signed.answer.sequence
        if not 1 <= sequence <= len(self):
            return False
        if self._digests[sequence - 1] != signed.sha256:
            raise AnswerError(f"the helper signed two answers {sequence}")
        return True

    def append(self, answers: Sequence[SignedAnswer]) -> None:
        """Add the next answers, oldest first, durably.

        Raises:
            AnswerError: If they do not follow the list, or one is not the helper's.
            LeadershipLostError: If another process may have taken over.
            OSError: If the disk is full; the list stays as it was.
        """
        check_list(answers, authorities=self._authorities, run=self._run, after=self.newest)
        before = self._path.stat().st_size
        with self._path.open("ab", buffering=0) as file:
            # After the file was opened: it is replaced before another process leads.
            self._tenure.check()
            try:
                left = memoryview(b"".join(map(encode_line, answers)))
                while left:  # One write may take a part only.
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise
        self._digests += [answer.sha256 for answer in answers]
        self.newest = answers[-1] if answers else self.newest


def _replace(path: Path, tenure: Tenure) -> None:
    """Put a copy in the file's place; whoever has the former one open writes to nobody."""
    for late in path.parent.glob(f".{path.name}.*.tmp"):
        late.unlink(missing_ok=True)

    def content() -> Iterator[bytes]:
        yield path.read_bytes()
        # A process that is stopped from here on finds its copy gone.
        tenure.check()

    write_chunks_atomically(path, content())


def _drop_half_a_line(path: Path, tenure: Tenure) -> None:
    """Cut off what stands behind the last line's end."""
    with path.open("rb+") as file:
        content = file.read()
        tenure.check()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
            os.fsync(file.fileno())
