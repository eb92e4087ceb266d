"""The account of DP-SGD on one device: epsilon of one example over all rounds so far.

The accountant is Opacus' PRV, loaded only when a plan asks for it.
"""

import importlib.util
from collections.abc import Sequence

from privacy.accounting.checked_values import check_delta
from privacy.accounting.second_opinion import NoFigureError, prv_epsilon
from privacy.example_level.settings import ExampleEvent


class ExampleAccountantError(RuntimeError):
    """Raised when epsilon cannot be told: Opacus is not installed, or came to no figure."""


def require_accountant() -> None:
    """Raise ExampleAccountantError if epsilon cannot be told, without loading anything."""
    if importlib.util.find_spec("opacus") is None:
        raise ExampleAccountantError(
            "the plan asks for example_privacy and opacus is missing; install sotto[dp-sgd]"
        )


def example_epsilon(events: Sequence[ExampleEvent], delta: float) -> float:
    """Return ε of one example, added or removed, over all events together; 0 if there are none.

    Raises:
        ExampleAccountantError: If Opacus is not installed, or comes to no finite figure.
        ValueError: If ``delta`` is not in (0, 1).
    """
    check_delta(delta)
    if not events:
        return 0.0
    require_accountant()
    mechanisms = [
        (event.noise_multiplier, event.sampling_rate, event.step_count) for event in events
    ]
    try:
        return prv_epsilon(mechanisms, delta)
    except NoFigureError as error:
        raise ExampleAccountantError(str(error)) from None


def with_event(events: Sequence[ExampleEvent], event: ExampleEvent) -> tuple[ExampleEvent, ...]:
    """Return the events with one more; equal steps are counted together, as order has no effect."""
    counts = {(past.noise_multiplier, past.sampling_rate): past.step_count for past in events}
    key = (event.noise_multiplier, event.sampling_rate)
    counts[key] = counts.get(key, 0) + event.step_count
    return tuple(
        ExampleEvent(noise_multiplier=noise, sampling_rate=rate, step_count=steps)
        for (noise, rate), steps in counts.items()
    )
