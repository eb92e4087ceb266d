"""Epsilon of a sequence of releases, refused where two accountants disagree.

The figure is the PLD's (`privacy.accounting.pld`); the second opinion is Opacus' PRV. Noise that is
correlated over rounds is accounted for by zero-concentrated differential privacy
(`privacy.accounting.tree`, `privacy.accounting.toeplitz`). The chance that a draw had more people
than slots is taken off delta before any accountant sees it. A figure is one onlooker's: readers'
unless the coordinator is named.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from privacy.accounting.checked_values import check_delta
from privacy.accounting.events import PrivacyEvent
from privacy.accounting.onlookers import Onlooker
from privacy.accounting.pld import epsilon_by_pld, gaussian_mechanisms
from privacy.accounting.second_opinion import NoFigureError, check_second_opinion, prv_epsilon
from privacy.accounting.slot_overflow import LARGEST_SHARE_OF_DELTA
from privacy.accounting.tally import Tally, tally
from privacy.accounting.tree import epsilon_of_rho

LARGEST_DIFFERENCE = 0.02
LARGEST_RELATIVE_DIFFERENCE = 0.01
LARGEST_CHECKED_EPSILON = 100.0
"""Above it the second opinion is not asked for: it takes minutes, and protects nobody anyway."""


class AccountantsDisagreeError(RuntimeError):
    """Raised when two accountants differ by more than rounding explains; neither is reported."""


class SlotOverflowError(ValueError):
    """Raised when draws could have more people than slots more often than delta allows."""


class PrivacyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of some releases for one enrolled person.

    Attributes:
        onlooker: The party against whom the figures hold.
        epsilon: ε at ``delta``; infinite where the onlooker saw anything without a guarantee.
        delta: δ, the chance of too many people in a draw included.
        epsilon_pld: ε by PLD; None for trees and buffers, and where nothing bounds it.
        epsilon_prv: ε by PRV; None as above, and where ε is above 100.
        rho: ρ of zero-concentrated differential privacy; None where sampling amplifies.
        overflow: Part of delta that is the chance of too many people in a draw.
        adjacency: Neighbouring relation; ``local`` is any two data sets of one person.
    """

    onlooker: Onlooker = "readers"
    epsilon: float
    delta: float
    epsilon_pld: float | None
    epsilon_prv: float | None
    rho: float | None
    overflow: float
    adjacency: str | None


class Reports(NamedTuple):
    """What the same events cost against each onlooker."""

    readers: PrivacyReport
    coordinator: PrivacyReport


def epsilon_of(
    events: Iterable[PrivacyEvent], delta: float, onlooker: Onlooker = "readers"
) -> float:
    """Return ε that events, in their order, spent at ``delta``, by the first accountant alone.

    Raises:
        SlotOverflowError: If draws can have more people than slots too often.
        ValueError: If delta is above 1 / population, or the events do not add up.
    """
    return epsilon_of_tally(tally(events, onlooker), delta)


def epsilon_of_tally(total: Tally, delta: float, *, coarseness: float = 1.0) -> float:
    """Return `epsilon_of` of events already added up; see `epsilon_by_pld` for ``coarseness``."""
    left = _delta_left(total, delta)
    if total.unprotected:
        return math.inf
    if total.is_correlated:
        # There ρ is always defined.
        return epsilon_of_rho(total.rho or 0.0, left) + total.loss_beside
    return epsilon_by_pld(total, left, coarseness=coarseness) + total.loss_beside


def report(
    events: Iterable[PrivacyEvent], delta: float, *, second_opinion: str = "prv"
) -> PrivacyReport:
    """Account for events, in their order, with two accountants.

    Raises:
        AccountantsDisagreeError: If they differ by more than max(0.02, 1 %), or the second came
            to no figure.
        UnsoundAccountantError: If the second is ``gdp``; only ``prv`` is sound.
        ValueError: As `epsilon_of`.
    """
    return report_of_tally(tally(events), delta, second_opinion=second_opinion)


def reports(
    events: Iterable[PrivacyEvent], delta: float, *, second_opinion: str = "prv"
) -> Reports:
    """Return `report` of events against each onlooker."""
    held = list(events)
    return reports_of_tallies(
        tally(held), tally(held, "coordinator"), delta, second_opinion=second_opinion
    )


def reports_of_tallies(
    readers: Tally, coordinator: Tally, delta: float, *, second_opinion: str = "prv"
) -> Reports:
    """Return `report` of what each onlooker saw, already added up."""
    of_readers = report_of_tally(readers, delta, second_opinion=second_opinion)
    if msgspec.structs.replace(readers, onlooker="coordinator") == coordinator:
        # Both saw the same, as under ``local``: the second accountant is slow.
        same = msgspec.structs.replace(of_readers, onlooker="coordinator")
        return Reports(of_readers, same)
    return Reports(of_readers, report_of_tally(coordinator, delta, second_opinion=second_opinion))


def report_of_tally(total: Tally, delta: float, *, second_opinion: str = "prv") -> PrivacyReport:
    """Return `report` of events already added up."""
    check_second_opinion(second_opinion)
    epsilon = epsilon_of_tally(total, delta)
    by_pld = None if total.unprotected or total.is_correlated else epsilon
    by_prv = None
    if by_pld is not None and by_pld <= LARGEST_CHECKED_EPSILON:
        try:
            by_prv = prv_epsilon(gaussian_mechanisms(total), _delta_left(total, delta))
        except NoFigureError as error:
            raise AccountantsDisagreeError(
                f"PLD gives epsilon {by_pld:.4f}, but there is no second opinion: {error}"
            ) from None
        check_agreement(by_pld, by_prv)
    return PrivacyReport(
        onlooker=total.onlooker,
        epsilon=epsilon,
        delta=delta,
        epsilon_pld=by_pld,
        epsilon_prv=by_prv,
        rho=None if total.unprotected else total.rho,
        overflow=total.overflow,
        adjacency=total.adjacency,
    )


def check_agreement(by_pld: float, by_prv: float) -> None:
    """Raise AccountantsDisagreeError if two ε, or NaN, differ by more than max(0.02, 1 %)."""
    allowed = max(LARGEST_DIFFERENCE, LARGEST_RELATIVE_DIFFERENCE * by_pld)
    if not abs(by_pld - by_prv) <= allowed:
        raise AccountantsDisagreeError(
            f"PLD gives epsilon {by_pld:.4f} and PRV {by_prv:.4f}: they may differ by "
            f"{allowed:.3g}; neither is reported"
        )


def _delta_left(total: Tally, delta: float) -> float:
    check_delta(delta, population_size=total.population_size)
    # A little slack: slot counts are chosen for the whole run, and sums round.
    if total.overflow > delta * LARGEST_SHARE_OF_DELTA * (1 + 1e-9):
        raise SlotOverflowError(
            f"slot_count must keep the chance of too many people in a draw at most delta / 10 = "
            f"{delta * LARGEST_SHARE_OF_DELTA:.3g} over the run, got {total.overflow:.3g}; raise "
            "slot_count or lower sampling_rate (in a federation's file rounds.cohort_size and "
            "rounds.participation_rate; a run whose rounds.cap was raised has used up the share of "
            "its first cap, and needs a larger cohort_size from now on)"
        )
    # What discrete noise adds to ε scales δ by less than e^loss, and 1 - loss is below e^-loss.
    return (delta - total.overflow) * (1 - total.loss_beside)
