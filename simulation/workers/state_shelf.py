"""Keep what simulated clients keep to themselves, in files: memory does not grow with them.

``states/CLIENT/ROUND.bin`` is a client's state after a round, as
``edge_client.personalisation.state`` writes it; ``optimisers/`` is alike. A client starts a round
from its newest earlier file, so a resumed run deletes later ones. A repeated attempt starts from
what the client kept in the first, as on a device, and overwrites it.
"""

from collections.abc import Collection
from pathlib import Path

from edge_client.personalisation.grown_state import kept_layout
from edge_client.personalisation.registry import build_client_half
from models.plan.plan import Plan
from privacy.foundation.atomic_files import sync_file, sync_folder


class StateShelf:
    """The states of one run's clients, found by name."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, which is made when the first state is kept."""
        self._folder = folder
        self._safe_round = 0

    def newest(self, client: str, round_number: int) -> Path | None:
        """Return a client's state after a round, counted from 0; None if it had not trained yet."""
        rounds = [known for known in _rounds(self._folder / client) if known <= round_number]
        return self._path(client, max(rounds)) if rounds else None

    def place(self, client: str, round_number: int) -> Path:
        """Return where a client's state after a round is to be written.

        Raises:
            OSError: If the folder cannot be made.
        """
        path = self._path(client, round_number)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def rewind(self, round_number: int) -> None:
        """Delete what was kept after a round: those rounds will be run again."""
        for client in self._clients():
            for known in _rounds(client):
                if known > round_number:
                    self._path(client.name, known).unlink()
        self._safe_round = round_number

    def flush(self, round_number: int) -> None:
        """Make durable what was kept up to a round, which is about to be recorded."""
        for client in self._clients():
            written = [known for known in _rounds(client) if self._safe_round < known]
            for known in written:
                sync_file(self._path(client.name, known))
            if written:
                sync_folder(client)
        self._safe_round = round_number

    def prune(self, rounds: Collection[int]) -> None:
        """Delete states, but keep what each client had after these rounds, the last among them."""
        for client in self._clients():
            known = _rounds(client)
            needed = {max((n for n in known if n <= kept), default=None) for kept in rounds}
            for number in known:
                if number not in needed and number < max(rounds):
                    self._path(client.name, number).unlink()

    def _clients(self) -> list[Path]:
        return sorted(self._folder.iterdir()) if self._folder.exists() else []

    def _path(self, client: str, round_number: int) -> Path:
        return self._folder / client / f"{round_number:06d}.bin"


def _rounds(client: Path) -> list[int]:
    # A writer that was killed may have left a temporary file; that is no state.
    return [int(path.stem) for path in client.glob("*.bin") if path.stem.isdigit()]


def checked_states(plan: Plan, states: StateShelf | None) -> StateShelf | None:
    """Return where states lie, or None where the method keeps none."""
    if kept_layout(plan, build_client_half(plan.personalisation)).is_empty:
        return None
    if states is None:
        raise ValueError(
            f'method "{plan.personalisation.method}" or its compression keeps personal states, and '
            "there is no folder for them"
        )
    return states


def checked_optimisers(plan: Plan, optimisers: StateShelf | None) -> StateShelf | None:
    """Return where the states of optimisers lie, or None where the plan keeps none."""
    if plan.training.optimiser_state == "fresh":
        return None
    if optimisers is None:
        raise ValueError(
            'training.optimiser_state = "kept" keeps states of optimisers, and there is no folder '
            "for them"
        )
    return optimisers
