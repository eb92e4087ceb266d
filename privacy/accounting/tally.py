"""Privacy events added up into the few numbers that accountants need.

Gaussian releases without sampling are one Gaussian release whose z^-2 is the sum of theirs,
exactly; sampled ones are counted by their (z, q); leaves of trees are counted by tree, rounds of
buffered noise all together. A tally is what one onlooker sees of the events
(`privacy.accounting.onlookers`).
"""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

import msgspec

from privacy.accounting.discrete_noise import LOSS_BESIDE
from privacy.accounting.events import (
    BufferedRelease,
    EvaluationRelease,
    GaussianRelease,
    LocalRelease,
    MaskedAttempt,
    MaskedRelease,
    PrivacyEvent,
    SecretCoinFlips,
    TreeRelease,
    UnprotectedRelease,
)
from privacy.accounting.onlookers import Onlooker, is_hidden, is_in_the_clear
from privacy.accounting.slot_overflow import overflow_probability
from privacy.accounting.toeplitz import buffered_rho
from privacy.accounting.tree import tree_rho


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of a sequence of events.

    Attributes:
        onlooker: The party whose view is counted.
        unprotected: Whether the onlooker saw anything without a guarantee.
        inverse_square: Sum of z^-2 over Gaussian releases without amplification.
        sampled: How many releases were amplified, by (z, q).
        tree: The rules of the trees, if there are any; the same for every leaf.
        tree_leaves: Leaves of each tree, in order.
        buffered: The rules of buffered noise, if there is any; the same for every round.
        buffered_rounds: Rounds with buffered noise.
        adjacency: Neighbouring relation of the guarantee; None before the first event.
        overflow: Probability that any draw had more people than slots.
        population_size: Largest population that was drawn from; None where nobody was drawn.
        loss_beside: ε to add for noise that is discrete, and the share of δ that it takes.
    """

    onlooker: Onlooker = "readers"
    unprotected: bool = False
    inverse_square: float = 0.0
    sampled: dict[tuple[float, float], int] = {}
    tree: TreeRelease | None = None
    tree_leaves: tuple[int, ...] = ()
    buffered: BufferedRelease | None = None
    buffered_rounds: int = 0
    adjacency: str | None = None
    overflow: float = 0.0
    population_size: int | None = None
    loss_beside: float = 0.0

    def plus(self, event: PrivacyEvent, times: int = 1) -> "Tally":
        """Return the tally after more of an event; ValueError for other neighbours or trees."""
        if is_hidden(event, self.onlooker):
            return self
        if isinstance(event, UnprotectedRelease) or is_in_the_clear(event, self.onlooker):
            return msgspec.structs.replace(self, unprotected=True)
        match event:
            case LocalRelease():
                return self._beside("local")._gaussian(event.noise_multiplier, None, times)
            case GaussianRelease() | EvaluationRelease():
                beside = self._beside(event.adjacency)
                return beside._gaussian(event.noise_multiplier, event.sampling, times)
            case MaskedAttempt() | MaskedRelease():
                shares = msgspec.structs.replace(self, loss_beside=LOSS_BESIDE)
                beside = shares._beside(event.adjacency)
                return beside._gaussian(event.noise_multiplier, None, times)
            case TreeRelease() | BufferedRelease():
                beside = self._beside(event.adjacency)
                return (
                    beside._leaf(event, times)
                    if isinstance(event, TreeRelease)
                    else beside._buffered(event, times)
                )

    @property
    def is_correlated(self) -> bool:
        """Return whether any noise was correlated over rounds: ρ alone accounts for that."""
        return self.tree is not None or self.buffered is not None

    @property
    def rho(self) -> float | None:
        """ρ of zero-concentrated differential privacy; None where amplified releases have none.

        With correlated noise, amplified releases count as if everybody had been drawn: never too
        little.
        """
        if not self.is_correlated:
            return None if self.sampled else self.inverse_square / 2
        of_sampled = sum(times / z**2 for (z, _), times in self.sampled.items())
        return self._correlated_rho + (self.inverse_square + of_sampled) / 2

    @property
    def _correlated_rho(self) -> float:
        if self.tree is not None:
            return tree_rho(
                self.tree.noise_multiplier,
                self.tree_leaves,
                min_separation=self.tree.min_separation,
                max_participation=self.tree.max_participation,
            )
        if self.buffered is None:
            return 0.0
        return buffered_rho(
            self.buffered.noise_multiplier,
            self.buffered.buffer_decays,
            self.buffered.buffer_scales,
            self.buffered_rounds,
            min_separation=self.buffered.min_separation,
            max_participation=self.buffered.max_participation,
        )

    def _beside(self, adjacency: str) -> "Tally":
        if self.adjacency not in (None, adjacency):
            raise ValueError(
                f"adjacency must be {self.adjacency} as in the events before, got {adjacency}: "
                "guarantees for different neighbours do not add up; begin a new run"
            )
        return msgspec.structs.replace(self, adjacency=adjacency)

    def _gaussian(self, z: float, sampling: SecretCoinFlips | None, times: int) -> "Tally":
        if sampling is None or sampling.sampling_rate == 1:
            return msgspec.structs.replace(self, inverse_square=self.inverse_square + times / z**2)
        sampled = Counter(self.sampled)
        sampled[z, sampling.sampling_rate] += times
        one_draw = overflow_probability(
            sampling.population_size, sampling.sampling_rate, sampling.slot_count
        )
        return msgspec.structs.replace(
            self,
            sampled=dict(sampled),
            overflow=self.overflow + times * one_draw,
            population_size=max(self.population_size or 0, sampling.population_size),
        )

    def _leaf(self, event: TreeRelease, times: int) -> "Tally":
        newest = event.tree_number == len(self.tree_leaves) - 1
        if not newest and event.tree_number != len(self.tree_leaves):
            raise ValueError(
                f"tree_number must be {max(0, len(self.tree_leaves) - 1)} or the next, "
                f"got {event.tree_number}"
            )
        rules = msgspec.structs.replace(event, tree_number=0)
        if self.tree not in (None, rules) or self.buffered is not None:
            raise ValueError(
                "noise_multiplier, min_separation and max_participation must be those of the "
                "tree's first leaf: its noise is already drawn; begin a new run"
            )
        before = self.tree_leaves[:-1] if newest else self.tree_leaves
        leaves = times + (self.tree_leaves[-1] if newest else 0)
        return msgspec.structs.replace(self, tree=rules, tree_leaves=(*before, leaves))

    def _buffered(self, event: BufferedRelease, times: int) -> "Tally":
        if self.buffered not in (None, event) or self.tree is not None:
            raise ValueError(
                "noise_multiplier, min_separation, max_participation and the buffers must be those "
                "of the run's first round: later noise cancels earlier noise; begin a new run"
            )
        rounds = self.buffered_rounds + times
        return msgspec.structs.replace(self, buffered=event, buffered_rounds=rounds)


def tally(events: Iterable[PrivacyEvent], onlooker: Onlooker = "readers") -> Tally:
    """Add up events in the order in which they happened; raises as `Tally.plus`."""
    total = Tally(onlooker=onlooker)
    for event, same in groupby(events):
        total = total.plus(event, len(list(same)))
    return total


def gaussian_tally(noise_multiplier: float, sampling_rate: float, times: int) -> Tally:
    """Return releases at one z and q, with a place for everybody; q = 1 is no sampling."""
    if sampling_rate == 1:
        return Tally(inverse_square=times / noise_multiplier**2)
    return Tally(sampled={(noise_multiplier, sampling_rate): times})


def masked_tally(noise_multiplier: float, times: int) -> Tally:
    """Return releases of sums under masks whose honest noise is z, whoever adds it."""
    event = MaskedRelease(
        noise_multiplier=noise_multiplier, adjacency="zero-out", honest_contributors=1
    )
    return Tally().plus(event, times)
