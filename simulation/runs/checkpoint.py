"""Keep a run on disk so that it can be stopped at any moment, resumed and exported.

A run's folder holds ``run.json`` (configuration and seed), ``metrics.jsonl``, ``partition.json``
(the deal) and, at the end, ``final.json``. Figures by client lie in ``clients.json``, and if asked
for ``keystrokes.json``, ``fine-tuned.json`` and ``novel.json``; clients' own tensors in ``states/``
and ``optimisers/``. ``releases/`` is written by the coordinator's own code, so ``sotto-export``
reads it like a deployment's, but unsigned. Only the newest and best release are kept, the last of
each stage of a growing model, and the newest ten where an aggregation rule looks back.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from models.plan.release_record import ReleaseError
from models.settings.growth import growth_rounds
from models.tasks.keystrokes import KeystrokeCounts
from models.tasks.metrics import Counts
from models.text.vocabulary import Vocabulary
from privacy.foundation.atomic_files import READABLE, write_atomically
from server.aggregation.noised_sums import weights_of_figures
from server.releases.files import NewRelease, ReleaseFolder, StoredRelease
from server.releases.publishing import release_round
from simulation.config.run_files import read_run_file, take_up
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Figures, Value
from simulation.figures.threshold import Threshold
from simulation.rounds.federation import Start
from simulation.rounds.guarded_run import GuardedRun
from simulation.workers.fine_tuning import OwnScore
from simulation.workers.state_shelf import StateShelf

RUN_FILE = "run.json"
FINAL_FILE = "final.json"
CLIENTS_FILE = "clients.json"
KEYSTROKES_FILE = "keystrokes.json"
FINE_TUNED_FILE = "fine-tuned.json"
RELEASES_FOLDER = "releases"
STATES_FOLDER = "states"
OPTIMISERS_FOLDER = "optimisers"


class CheckpointError(ValueError):
    """Raised when a run's folder cannot be resumed; the text says why."""


class RunDescription(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The facts that fix what a run computes, so that it is never resumed as another run.

    Attributes:
        run: Identifier, 32 hex digits.
        configuration: The TOML tables.
        until: The figure that ends the run early, or None.
    """

    run: str
    seed: int
    configuration: dict[str, Any]  # TOML values.
    until: Threshold | None = None


class RunFolder:
    """One run's folder: its releases, and the states of clients and of their optimisers."""

    def __init__(self, folder: Path, description: RunDescription) -> None:
        """Take up the folder, or make it and record what the run computes.

        Raises:
            RunFileError: If the folder holds another run.
        """
        self.folder = folder
        take_up(
            folder / RUN_FILE,
            msgspec.json.encode(description, order="sorted"),
            otherwise="a run with another configuration or seed",
        )
        self.releases = ReleaseFolder(folder / RELEASES_FOLDER)
        self.states = StateShelf(folder / STATES_FOLDER)
        self.optimisers = StateShelf(folder / OPTIMISERS_FOLDER)

    def save(
        self,
        release: NewRelease,
        *,
        best_round: int | None,
        milestones: Collection[int] = (),
        guarded: GuardedRun | None = None,
        took_part: Sequence[str] = (),
    ) -> None:
        """Write a round's release whole, and drop those that nobody goes back to.

        ``best_round`` and ``milestones`` are kept beside it; ``guarded`` records the release in the
        run's ledger.
        """
        passed = {number for number in milestones if number <= release.round_number}
        kept = {release.round_number, *passed} | ({best_round} if best_round is not None else set())
        # First, so that no release counts on a state that a power cut takes.
        self.states.flush(release.round_number)
        self.optimisers.flush(release.round_number)
        if guarded is not None:
            guarded.release(self.releases, release, took_part, best_round=best_round, keep=passed)
        else:
            now = time.time()
            release_round(
                None,
                self.releases,
                release,
                None,
                opened_at=now,
                now=now,
                best_round=best_round,
                keep=passed,
            )
        self.states.prune(kept)
        # Nobody trains on from the best model.
        self.optimisers.prune({release.round_number})

    def rewind(self, round_number: int) -> None:
        """Forget what clients kept after a round: those rounds will be run again."""
        self.states.rewind(round_number)
        self.optimisers.rewind(round_number)

    def newest(self, vocabulary: Vocabulary | None) -> StoredRelease | None:
        """Return the release to go on from with these words, or None at the start.

        Raises:
            CheckpointError: If it is missing or damaged, or of other words.
        """
        number = self.releases.pointed("latest")
        if number is None:
            return None
        newest = self.read(number)
        try:
            newest.check_words(vocabulary, instead="begin another run in another folder")
        except ReleaseError as error:
            raise CheckpointError(f"{self.folder} cannot be gone on with: {error}") from None
        return newest

    def read(self, round_number: int) -> StoredRelease:
        """Return the release of a round.

        Raises:
            CheckpointError: If it is missing or damaged.
        """
        try:
            return self.releases.read(round_number)
        except ReleaseError as error:
            raise CheckpointError(f"{error}; remove {self.folder} to start over") from None

    def save_clients(self, counts: Mapping[str, Counts]) -> None:
        """Record what each client's model made of its own test examples, by client."""
        self._write(CLIENTS_FILE, counts)

    def save_keystrokes(self, keys: Mapping[str, KeystrokeCounts]) -> None:
        """Record the keys that each client's model would save it on its own test text."""
        self._write(KEYSTROKES_FILE, keys)

    def save_fine_tuned(self, scores: Mapping[int, Mapping[str, OwnScore]]) -> None:
        """Record what each client's fine-tuned model makes of its test examples, by epoch."""
        self._write(FINE_TUNED_FILE, scores)

    def finish(self, figures: Figures) -> None:
        """Record the final figures: the run is over."""
        self._write(FINAL_FILE, figures)

    def final_figures(self) -> dict[str, Value] | None:
        """Return the final figures of a run that is over, else None."""
        path = self.folder / FINAL_FILE
        if not path.exists():
            return None
        return read_run_file(path, dict[str, Value])

    def _write(self, name: str, figures: Mapping[Any, Any]) -> None:  # Structs and numbers.
        write_atomically(self.folder / name, msgspec.json.encode(figures), mode=READABLE)


def start_of(newest: StoredRelease) -> Start:
    """Return where a recorded round left the run."""
    figures = newest.record.metrics
    norm, typical = figures.get("next_clipping_norm"), figures.get("next_typical_norm")
    return Start(
        parameters=torch.tensor(newest.parameters),
        personalisation=newest.personalisation,
        round_number=newest.record.round,
        tokens_trained=int(figures.get("tokens") or 0),
        bytes_down=int(figures.get("bytes_down") or 0),
        bytes_up=int(figures.get("bytes_up") or 0),
        clipping_norm=None if norm is None else float(norm),
        typical_norm=None if typical is None else float(typical),
        weights_so_far=weights_of_figures(figures),
    )


def milestones(config: SimulationConfig, kept_every: int) -> frozenset[int]:
    """Return the rounds whose models stay: every so manyth if it is above 0, and ends of stages.

    Those are the last rounds of each stage but the last, where a model is whole for its size.
    """
    counted = range(kept_every, config.rounds.cap, kept_every) if kept_every else ()
    grown = () if config.growth is None else growth_rounds(config.growth)
    return frozenset([*counted, *(number - 1 for number in grown)])
