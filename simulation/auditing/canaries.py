"""Send canaries through the coordinator's own close, round after round, and score what comes out.

A canary's update lies along a random direction and is four times as long as the clip allows: after
clipping it is the largest that counts. All other slots are empty. This is the guarantee's worst
case, an observer who knows all other updates, so the scores show the mechanism's own noise
multiplier.

Every round starts anew from zero parameters: one round's privacy is audited, without amplification
by sampling, which the accountant adds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from models.vector.schema import Schema
from privacy.auditing.scores import AuditError, Coins, Scores
from privacy.noise.settings import PrivacySettings
from server.aggregation.settings import AggregationSettings, AttentiveSettings
from server.closing.summing import Contribution

LARGEST_CROWD = 16
LARGEST_DIRECTIONS = 1 << 26
"""Elements of all directions together: 256 MiB."""

_OVERSIZE = 4.0
_STRIDE = 64
# What a canary may lose of its displacement to the others in its round.
_SHARED_LOSS = 0.01


class Coordinator(Protocol):
    """A coordinator that turns a round's contributions into everything that leaves it."""

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        """Return a round's flat float32 vectors ``(elements,)``: one, or more after a restart."""
        ...


@dataclass(frozen=True)
class Canaries:
    """The made-up clients of an audit.

    Attributes:
        directions: Orthonormal rows, float32, shape ``(canaries, elements)``.
        update_norm: L2 norm of a canary's update, in parameter units.
        opposes: Whether a canary whose coin says no sends the opposite update, so that neighbours
            are any two updates. Otherwise it leaves its slot empty.
    """

    directions: Tensor
    update_norm: float
    opposes: bool

    def contributions(self, coins: Coins) -> list[Contribution]:
        """Return what the canaries of one round send, for coins of shape ``(canaries,)``."""
        return [
            Contribution(
                slot=slot,
                update=direction * (self.update_norm if coin else -self.update_norm),
                example_count=1,
                client_name=canary_name(slot),
            )
            for slot, (direction, coin) in enumerate(zip(self.directions, coins, strict=True))
            if coin or self.opposes
        ]

    def scores(self, publications: Sequence[Tensor]) -> Scores:
        """Return the publications' mean along each canary, float64, ``(canaries,)``.

        Noise that was drawn again for the round averages away.
        """
        seen = torch.stack(list(publications)).mean(dim=0)
        scores: Scores = (self.directions @ seen).double().numpy()
        return scores


class CanaryRounds(NamedTuple):
    """An audit's scores, float64, and coins (``included``), both ``(rounds, canaries)``.

    ``republished`` counts rounds of which an observer got more than one version.
    """

    scores: Scores
    included: Coins
    republished: int

    @property
    def round_count(self) -> int:
        """Return how many rounds were run."""
        return len(self.scores)


def canary_name(number: int) -> str:
    """Return a canary's client name."""
    return f"canary-{number:04}"


def crowd_size(aggregation: AggregationSettings, schema: Schema, slot_count: int) -> int:
    """Return how many canaries one round can carry without hiding each other.

    Attention gives a full slot up to e^κ times an empty one's weight; the other canaries may cost
    one a hundredth of its displacement. Each needs a direction of its own.
    """
    room = min(LARGEST_CROWD, slot_count, *(tensor.element_count for tensor in schema.tensors))
    if isinstance(aggregation, AttentiveSettings) and aggregation.attention_strength != 0:
        ratio = math.exp(abs(aggregation.attention_strength))
        weight = ratio + slot_count - 1
        room = min(room, 1 + math.floor(_SHARED_LOSS * weight / (ratio - 1)))
    return room


def make_canaries(
    schema: Schema,
    privacy: PrivacySettings,
    *,
    count: int,
    opposes: bool,
    generator: torch.Generator,
) -> Canaries:
    """Draw orthonormal directions in which clipped updates weigh most.

    Under a flat clip all of an update lies in the largest tensor; where every tensor has its own
    clip, in each as much as that allows. Without a clip canaries have norm 1.

    Raises:
        AuditError: If the model is too large, or too small for that many directions.
    """
    if count * schema.element_count > LARGEST_DIRECTIONS:
        raise AuditError(
            f"a model of {schema.element_count} elements is too large for {count} canaries; "
            "audit the same settings with a smaller model, "
            "as --set model.hidden_size=32 --set model.vocabulary_size=1000"
        )
    shares = _tensor_shares(schema, privacy)
    directions = torch.zeros(count, schema.element_count)
    for tensor, share in zip(schema.tensors, shares, strict=True):
        if share == 0:
            continue
        if tensor.element_count < count:
            raise AuditError(f"{tensor.name} must have at least {count} elements for its canaries")
        drawn = torch.randn(tensor.element_count, count, generator=generator, dtype=torch.float64)
        basis, _ = torch.linalg.qr(drawn)
        directions[:, schema.slices[tensor.name]] = (share * basis.T).float()
    length = 1.0 if privacy.clipping_norm is None else _OVERSIZE * privacy.clipping_norm
    return Canaries(directions, length, opposes)


def run_canaries(
    coordinator: Coordinator,
    canaries: Canaries,
    *,
    round_count: int,
    seed: int,
    before: CanaryRounds | None = None,
    after_round: Callable[[CanaryRounds], None] | None = None,
) -> CanaryRounds:
    """Run rounds of canaries, each in by a fair coin, or go on after those ``before``.

    Args:
        round_count: Rounds in all.
        seed: Seed of the coins, apart from every seed of the coordinator.
        after_round: Hears of the scores so far, a hundred times at most, and at the end.
    """
    shape = (round_count, len(canaries.directions))
    coins: Coins = np.random.default_rng(seed).random(shape) < 0.5
    scores: Scores = np.zeros(shape)
    first, republished, stride = 0, 0, max(_STRIDE, round_count // 100)
    if before is not None:
        first, republished = before.round_count, before.republished
        scores[:first] = before.scores
    for number in range(first, round_count):
        publications = coordinator.publish(canaries.contributions(coins[number]))
        scores[number] = canaries.scores(publications)
        republished += any(not torch.equal(publications[0], other) for other in publications[1:])
        done = number + 1
        if after_round is not None and (done % stride == 0 or done == round_count):
            after_round(CanaryRounds(scores[:done], coins[:done], republished))
    return CanaryRounds(scores, coins, republished)


def _tensor_shares(schema: Schema, privacy: PrivacySettings) -> list[float]:
    """Return how much of a canary's norm lies in each tensor; the squares sum to 1."""
    clips = privacy.tensor_clips(len(schema.tensors))
    if clips is not None:
        return [clip / math.hypot(*clips) for clip in clips]
    largest = max(schema.tensors, key=lambda tensor: tensor.element_count)
    return [float(tensor is largest) for tensor in schema.tensors]
