"""Keep what a noise mode promises in a simulated run, with the server's own parts.

The run's folder gets a store with a coordinator's ledger, and a release is made as there: files,
then one transaction with the ledger's entry, then the name. Under ``local`` an attempt is entered
once, before it trains; a stopped run repeats its round's attempts. So noise is never drawn again
for a recorded round, and ``sotto-privacy epsilon --ledger`` reads ``store.sqlite``.
"""

import dataclasses
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from privacy.accounting.onlookers import Epsilons
from privacy.noise.secure_gaussian import NoiseKeys, SystemKeys
from server.budget.noised_evaluations import NoisedEvaluations
from server.budget.round_gate import RoundGate
from server.config.store import StoreSettings
from server.devices.clients import add_names
from server.records.folder import ServerFolder
from server.records.ledger import write_entry
from server.records.store import StoreError, check_run, open_store, start_run
from server.records.tree_keys import noise_keys_of
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.publishing import last_release, release_round
from server.releases.recovery import finish_release
from simulation.config.simulation import SimulationConfig


class GuardedRun:
    """The store of one simulated run under a guarantee; ``spent`` is None before an attempt."""

    def __init__(
        self,
        folder: Path,
        config: SimulationConfig,
        run: str,
        names: Sequence[str],
        *,
        releases: ReleaseFolder,
        noise_keys: NoiseKeys | None = None,
    ) -> None:
        """Take up the run's store, or make it.

        Args:
            run: Its identifier, 32 hex digits.
            releases: What its releases lie in.
            noise_keys: Given in tests only, to repeat calibrated noise.

        Raises:
            StoreError: If the store is another run's, or a tree's secret does not open.
            OSError: If the disk is full.
        """
        self._config = config
        self._run = run
        self._store = open_store(StoreSettings().rooted(folder))
        if last_release(self._store) is None:
            self._start()
        if check_run(self._store, config.seed, config.run_digest) != run:
            raise StoreError(f"{folder} holds the ledger of another run; give another --out")
        add_names(self._store, names, now=time.time())
        self.gate = RoundGate(config, self._store, run, published=releases.newest_head)
        self.spent: Epsilons | None = None
        self.noise_keys = noise_keys or noise_keys_of(
            ServerFolder(folder), self._store, config, run
        )
        self.evaluations = NoisedEvaluations(config, self._store, run, noise_keys or SystemKeys())

    def population(self, round_number: int) -> list[str]:
        """Return who may take part in a round."""
        return self.gate.population(round_number)

    def admit(self, round_number: int, attempt: int) -> None:
        """Ask the gate before an attempt, and note ε after it; ``RoundGate.admit``."""
        self.spent = self.gate.admit(round_number, attempt)

    def enter(self, round_number: int, attempt: int) -> None:
        """Enter an attempt in the ledger where its updates show something, before they are made."""
        entry = self.gate.entries.of_attempt(round_number, attempt)
        if entry is not None:
            with self._store.write() as connection:
                write_entry(connection, entry)

    def recover(self, releases: ReleaseFolder) -> None:
        """Publish a release that a stopped process recorded; drop one that it did not."""
        finish_release(self._store, releases, time.time())

    def release(
        self,
        releases: ReleaseFolder,
        new: NewRelease,
        took_part: Sequence[str] = (),
        *,
        best_round: int | None = None,
        keep: Collection[int] | None = None,
    ) -> None:
        """Release a round's model with its entry in the ledger; round 0 gets no entry.

        Raises:
            OSError: If the disk is full; nothing is recorded then.
        """
        now = time.time()
        if new.round_number:
            entry = self.gate.entries.of_release(new.round_number, self._config.privacy)
            new = dataclasses.replace(new, entry=entry)
        # Coins keep secret who was drawn; other cohorts are counted, for limits on taking part.
        counted = () if self.gate.hides_counts else took_part
        release_round(
            self._store,
            releases,
            new,
            None,
            opened_at=now,
            now=now,
            best_round=best_round,
            keep=keep,
            took_part=counted,
        )

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _start(self) -> None:
        seed, digest = self._config.seed, self._config.run_digest
        try:
            check_run(self._store, seed, digest)
        except StoreError:
            start_run(self._store, self._run, seed, digest, now=time.time())
