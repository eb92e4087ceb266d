"""The exit status of ``sotto-client run --once``: one for each thing a device manager can do."""

from dataclasses import dataclass

SERVED = 0
FAILED = 1
DATA_UNUSABLE = 3
PLAN_REFUSED = 4
NO_ROUND = 5

STATUSES = """\
exit status, with --once:
  0  a round was served: the coordinator has this device's answer
  1  it failed, for the reason on stderr
  2  wrong usage
  3  --data holds nothing that can be used: missing, empty, binary, or without a known word
  4  the plan is not one that this device runs: below floor.toml, or of another version
  5  no round came: the run is over, or the agent was stopped before one was served
Without --once it ends with 0 when it is stopped, and with 1, 2 or 3 (data missing) otherwise.
"""

_PLAN = frozenset(
    {
        "bytes_a_day",
        "example_budget_spent",
        "plan_unreadable",
        "plan_unusable",
        "plugin_unusable",
        "schema_mismatch",
        "vocabulary_mismatch",
        "wrong_size",
    }
)


@dataclass(frozen=True)
class NotServed:
    """The reason for no service: a stable code for the coordinator, a line for the owner."""

    code: str
    reason: str

    @property
    def exit_status(self) -> int:
        """Return what ``--once`` ends with."""
        if self.code == "data_unusable":
            return DATA_UNUSABLE
        # A floor that cannot be read is a failure: nothing was held against it.
        below_floor = self.code.startswith("floor_") and self.code != "floor_unusable"
        return PLAN_REFUSED if below_floor or self.code in _PLAN else FAILED
