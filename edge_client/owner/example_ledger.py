"""Keep on the device what example-level privacy has cost its owner, over all rounds and runs.

It is never sent. Neighbouring texts differ in one sentence whatever the run is, so everything ever
trained on the device's text is accounted together. No torch or Opacus: the agent reads it too.
"""

from pathlib import Path

import msgspec

from edge_client.owner.floor import ExampleBudget
from privacy.example_level.settings import ExampleEvent
from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.strict_json import read_json


class ExampleLedgerError(Exception):
    """Raised when the file cannot be read: what was spent is unknown, so nothing more may be."""


class ExampleBudgetError(Exception):
    """Raised when one more round would cost more than the device's owner allows."""


class ExampleSpending(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The spending of one device so far, over ``round_count`` rounds.

    ``events`` are steps of DP-SGD, equal ones counted together. ``epsilon`` at ``delta`` is that of
    one example over all of them, measured when the last one was added.
    """

    events: tuple[ExampleEvent, ...] = ()
    round_count: int = 0
    epsilon: float = 0.0
    delta: float = 0.0


def read_spending(path: Path) -> ExampleSpending:
    """Return what was spent; nothing, if there is no file.

    Raises:
        ExampleLedgerError: If the file cannot be read.
    """
    try:
        return read_json(path, ExampleSpending)
    except FileNotFoundError:
        return ExampleSpending()
    except msgspec.MsgspecError as error:
        raise ExampleLedgerError(
            f"{path} cannot be read: {error}; what this device's text has spent is unknown. "
            "Restore the file, or remove it to begin again from 0"
        ) from None


def write_spending(path: Path, spending: ExampleSpending) -> None:
    """Replace the file durably; call before the update that it pays for can be sent."""
    write_atomically(path, msgspec.json.encode(spending))


def check_budget(epsilon: float, budget: ExampleBudget) -> None:
    """Check what will have been spent after a round against what the owner allows.

    Raises:
        ExampleBudgetError: If it is more; not by how much, since the coordinator reads it.
    """
    if not epsilon <= budget.epsilon:
        raise ExampleBudgetError(
            "the device's budget of example privacy is spent; its owner can raise "
            "example_privacy.epsilon in floor.toml"
        )
