"""What privacy costs: the answers of ``sotto-privacy epsilon`` and ``noise``, as figures."""

from pathlib import Path
from typing import Any, Literal

# Not until they compute do the answers below load it: here, so that the door names its extra.
import dp_accounting  # noqa: F401

from privacy.commands import budget
from privacy.commands.budget_flags import Epsilon, Noise

Mode = Literal["central", "ftrl", "masked"]


def epsilon(
    plan: str | Path | None = None,
    *,
    ledger: str | Path | None = None,
    mode: Mode | None = None,
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    sampling_rate: float | None = None,
    delta: float | None = None,
    population: int | None = None,
    min_separation: int | None = None,
    max_participation: int | None = None,
    restart_rounds: int | None = None,
    mechanism: Literal["tree", "blt"] | None = None,
) -> dict[str, Any]:  # The type of a figure goes with its name.
    """Compute what a federation's file, a ledger or a setting costs one enrolled person.

    Args:
        plan: Federation's TOML file.
        ledger: A federation's folder, its SQLite store, or what ``sotto-server ledger --json``
            printed.
        mode: How noise is added; None is ``central``.
        rounds: Rounds of the whole run.
        noise_multiplier: Noise standard deviation over L2 sensitivity; no unit.
        sampling_rate: Chance of one person in one round, in (0, 1].
        delta: Chance that the bound fails, over the whole run.
        population: Enrolled people; with it a round's places are fixed.
        min_separation: ``ftrl``: least distance of two rounds of one person, in rounds.
        max_participation: ``ftrl``: most rounds of one person.
        restart_rounds: ``ftrl`` with trees: rounds of one tree.
        mechanism: ``ftrl``: ``tree`` or ``blt``.

    Returns:
        The figures of ``sotto-privacy epsilon --json``; None if one does not apply or has no bound.

    Raises:
        ValueError: If a value is missing, out of range or without effect.
        AccountantsDisagreeError: If two accountants differ.
        LedgerError: If the ledger's chain is broken.
    """
    asked = Epsilon(
        plan=None if plan is None else Path(plan),
        ledger=None if ledger is None else Path(ledger),
        mode=mode,
        rounds=rounds,
        noise_multiplier=noise_multiplier,
        sampling_rate=sampling_rate,
        delta=delta,
        population=population,
        min_separation=min_separation,
        max_participation=max_participation,
        restart_rounds=restart_rounds,
        mechanism=mechanism,
    )
    return budget.epsilon_of(asked).figures


def noise_for(
    target_epsilon: float,
    *,
    rounds: int,
    delta: float,
    mode: Mode | None = None,
    sampling_rate: float | None = None,
    min_separation: int | None = None,
    max_participation: int | None = None,
    restart_rounds: int | None = None,
    mechanism: Literal["tree", "blt"] | None = None,
) -> dict[str, Any]:  # The type of a figure goes with its name.
    """Find the least noise that keeps a run within a budget.

    Args:
        target_epsilon: Epsilon of the whole run.

    The other arguments and the errors are those of ``epsilon``.

    Returns:
        The figures of ``sotto-privacy noise --json``, ``noise_multiplier`` among them.
    """
    asked = Noise(
        target_epsilon=target_epsilon,
        mode=mode,
        rounds=rounds,
        delta=delta,
        sampling_rate=sampling_rate,
        min_separation=min_separation,
        max_participation=max_participation,
        restart_rounds=restart_rounds,
        mechanism=mechanism,
    )
    return budget.noise_for(asked).figures
