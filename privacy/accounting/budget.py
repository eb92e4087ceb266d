"""A run's end before the round that would pass its privacy budget.

Before a round is opened, what is spent plus what the round will spend must fit. Only the first
accountant is asked, so that a coordinator never loads the second.
"""

from collections.abc import Iterable

import msgspec

from privacy.accounting.accountant import SlotOverflowError, epsilon_of_tally
from privacy.accounting.checked_values import check_count, check_delta, check_epsilon
from privacy.accounting.events import PrivacyEvent
from privacy.accounting.onlookers import Onlooker
from privacy.accounting.tally import Tally, tally

MOST_ROUNDS = 1 << 17
"""Rounds beyond which nobody looks for the end of a budget."""

_FAST = 4.0


class PrivacyBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that a run may spend on each enrolled person.

    Attributes:
        epsilon_budget: Largest ε of the whole run, evaluation included.
        delta: δ of the whole run; keep it at most 1 / population.
        onlooker: The party against whom it holds.
    """

    epsilon_budget: float
    delta: float
    onlooker: Onlooker = "readers"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon_budget, "epsilon_budget")
        check_delta(self.delta)

    @property
    def name(self) -> str:
        """The setting that it is read from."""
        is_readers = self.onlooker == "readers"
        return "epsilon_budget" if is_readers else "coordinator_epsilon_budget"


class BudgetExceededError(Exception):
    """Raised when the rounds asked for do not fit; has how many do, and ε after all of them."""

    def __init__(self, message: str, *, rounds_left: int, epsilon: float) -> None:
        super().__init__(message)
        self.rounds_left = rounds_left
        self.epsilon = epsilon


def check_budget(
    events_so_far: Iterable[PrivacyEvent],
    next_event: PrivacyEvent,
    budget: PrivacyBudget,
    *,
    rounds: int = 1,
) -> float:
    """Return ε after ``rounds`` more of ``next_event``, if it fits into the budget.

    ``events_so_far`` is the run's ledger, in order; ``rounds`` is 1 before a round and all of them
    before a run.

    Raises:
        BudgetExceededError: If they do not fit; says how many do, and what to change.
        SlotOverflowError: If so many draws could have more people than slots too often.
        ValueError: If the events do not add up.
    """
    check_count(rounds, "rounds")
    spent = tally(events_so_far, budget.onlooker)
    epsilon = epsilon_of_tally(spent.plus(next_event, rounds), budget.delta)
    if epsilon <= budget.epsilon_budget:
        return epsilon
    left = rounds_left(spent, next_event, budget, rounds - 1)
    raise BudgetExceededError(
        _exceeded(budget, rounds, epsilon, left), rounds_left=left, epsilon=epsilon
    )


def rounds_left(
    spent: Tally, next_event: PrivacyEvent, budget: PrivacyBudget, most: int = MOST_ROUNDS
) -> int:
    """Return how many more rounds of ``next_event`` fit into the budget, at most ``most``.

    ``spent`` is what the budget's onlooker saw.
    """

    def fits(rounds: int, coarseness: float) -> bool:
        after = spent if rounds == 0 else spent.plus(next_event, rounds)
        try:
            epsilon = epsilon_of_tally(after, budget.delta, coarseness=coarseness)
        except SlotOverflowError:
            return False
        return epsilon <= budget.epsilon_budget

    # A coarse grid finds the place; the usual one, which `check_budget` asks, has the last word.
    low, high = 0, 1
    while high <= most and fits(high, _FAST):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle, _FAST) else (low, middle)
    while low > 0 and not fits(low, 1.0):
        low -= 1
    while low < most and fits(low + 1, 1.0):
        low += 1
    return low


def _exceeded(budget: PrivacyBudget, rounds: int, epsilon: float, left: int) -> str:
    most, delta = budget.epsilon_budget, budget.delta
    if budget.onlooker == "coordinator":
        return (
            f"{_counted(rounds, 'attempt')} more would bring epsilon against the coordinator to "
            f"{epsilon:.3g} at delta {delta:g}, above {budget.name} {most:g}: "
            f"{_counted(left, 'attempt')} left, and one that is abandoned counts; raise "
            f"noise_multiplier and begin a new run, or raise {budget.name}"
        )
    return (
        f"{_counted(rounds, 'round')} more would bring epsilon to {epsilon:.3g} at delta "
        f"{delta:g}, above {budget.name} {most:g}: {_counted(left, 'round')} left; raise "
        f"noise_multiplier or lower the sampling rate and begin a new run, or raise {budget.name}"
    )


def _counted(count: int, thing: str) -> str:
    return f"1 {thing}" if count == 1 else f"{count} {thing}s"
