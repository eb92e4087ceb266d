"""Keep the scores of an audit on disk, so that a stopped audit goes on where it was."""

from pathlib import Path

import numpy as np

from models.vector.archives import ArraysError, read_arrays
from privacy.auditing.scores import AuditError
from simulation.auditing.canaries import CanaryRounds


class RoundsFile:
    """An audit's scores on disk."""

    def __init__(self, path: Path, described: str) -> None:
        """Use an ``.npz`` file; scores of an audit described otherwise are not taken up."""
        self._path = path
        self._described = described

    def read(self) -> CanaryRounds | None:
        """Return the rounds so far, or None.

        Raises:
            AuditError: If they belong to another audit, or the file is damaged.
        """
        if not self._path.exists():
            return None
        try:
            stored = read_arrays(self._path, ("described", "scores", "included", "republished"))
            described = str(stored["described"])
            rounds = CanaryRounds(stored["scores"], stored["included"], int(stored["republished"]))
        # The last two: arrays that are no single text or number.
        except (ArraysError, TypeError, ValueError) as error:
            raise AuditError(
                f"{self._path} is damaged: {error}; remove it, and the audit begins anew"
            ) from None
        if described != self._described:
            raise AuditError(
                f"{self._path} holds an audit of other settings; give another --out, "
                "or remove the folder"
            )
        return rounds

    def write(self, rounds: CanaryRounds) -> None:
        """Replace the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name("." + self._path.name)
        np.savez(
            temporary,
            described=self._described,
            scores=rounds.scores,
            included=rounds.included,
            republished=rounds.republished,
        )
        temporary.replace(self._path)
