"""The releases about the enrolled people, without any accountant's view of them.

An event holds what a later reader needs to compute epsilon again with another accountant, and
nothing about one person. The unit of privacy is the enrolled person throughout.

References:
    Andrew et al., "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021,
        arXiv:1905.03871 (Theorem 1: how the noise is split between the sum and the count).
    Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling",
        ICML 2021, arXiv:2103.00039 (tree aggregation).
    Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with
        Secure Aggregation", ICML 2021, arXiv:2102.06387 (noise from the devices).
    McMahan, Xu, Zhang, "A Hassle-free Algorithm for Private Learning in Practice: Don't Use Tree
        Aggregation, Use BLTs", EMNLP 2024, arXiv:2408.08868 (buffered noise).
"""

from typing import Literal

import msgspec

from privacy.accounting.checked_values import (
    check_buffers,
    check_count,
    check_noise_multiplier,
    check_sampling_rate,
)

Adjacency = Literal["zero-out", "add-remove", "replace-one"]
"""The difference between neighbours: one person's updates become zeros; the person is there or not
(the same as zero-out at a fixed slot count); or the updates become any others."""


class SecretCoinFlips(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cohort that the coordinator drew by one secret coin for each enrolled person.

    Only this draw amplifies privacy. A cohort of fixed size, devices that choose themselves, and
    over-selection do not: such an event has ``sampling = None``.

    Attributes:
        sampling_rate: q, chance of one person in one round, in (0, 1].
        population_size: Enrolled people among whom the coins were thrown.
        slot_count: M, the fixed number of slots; a draw of more people aborts the round before
            any lease, and the probability of that is added to delta.
    """

    sampling_rate: float
    population_size: int
    slot_count: int

    def __post_init__(self) -> None:
        check_sampling_rate(self.sampling_rate)
        check_count(self.population_size, "population_size")
        check_count(self.slot_count, "slot_count")


class _Event(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event"
):
    """Common base of every event: its kind."""


class _GaussianEvent(_Event, frozen=True, kw_only=True):
    """A release with Gaussian noise by the coordinator.

    Attributes:
        noise_multiplier: z of everything that is released, as one vector: noise standard deviation
            over L2 sensitivity under ``adjacency``.
        adjacency: Neighbouring relation for which the sensitivity holds.
        sampling: How the cohort was drawn; None where no amplification may be claimed.
    """

    noise_multiplier: float
    adjacency: Adjacency
    sampling: SecretCoinFlips | None

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        if (
            self.sampling is not None
            and self.sampling.sampling_rate < 1
            and self.adjacency == "replace-one"
        ):
            raise ValueError(
                "sampling must be None with adjacency replace-one: amplification is accounted for "
                "zero-out and add-remove only; account with adjacency zero-out, or without sampling"
            )


class GaussianRelease(_GaussianEvent, frozen=True, kw_only=True, tag="gaussian"):
    """One round's aggregate.

    With adaptive clipping the noised count is part of z (Andrew et al., Theorem 1: z^-2 is the sum
    of both z^-2).
    """


class TreeRelease(_Event, frozen=True, kw_only=True, tag="tree"):
    """One round's leaf in a binary tree of noise, and the prefix sum released with it.

    Attributes:
        noise_multiplier: z: standard deviation of each node's noise over the L2 sensitivity of
            one round's aggregate.
        adjacency: Neighbouring relation for which the sensitivity holds.
        min_separation: Least distance in rounds of two participations of one person; 1 is every
            round.
        max_participation: Most rounds in which one person takes part in the whole run,
            enrolling again included.
        tree_number: The leaf's tree, counted from 0; a restart begins the next one.
    """

    noise_multiplier: float
    adjacency: Adjacency
    min_separation: int
    max_participation: int
    tree_number: int

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        check_count(self.min_separation, "min_separation")
        check_count(self.max_participation, "max_participation")
        check_count(self.tree_number, "tree_number", least=0)


class BufferedRelease(_Event, frozen=True, kw_only=True, tag="blt"):
    """One round's aggregate, with noise that is correlated over rounds through buffers.

    Attributes:
        noise_multiplier: z of each round's own draw: noise standard deviation over the L2
            sensitivity of one round's aggregate under ``adjacency``.
        adjacency: Neighbouring relation for which the sensitivity holds.
        min_separation: As in ``TreeRelease``.
        max_participation: As in ``TreeRelease``.
        buffer_decays: θ of every buffer, in (0, 1); the matrix C of `privacy.accounting.toeplitz`.
        buffer_scales: ω of every buffer, above 0; at most 1 together.
    """

    noise_multiplier: float
    adjacency: Adjacency
    min_separation: int
    max_participation: int
    buffer_decays: tuple[float, ...]
    buffer_scales: tuple[float, ...]

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        check_count(self.min_separation, "min_separation")
        check_count(self.max_participation, "max_participation")
        check_buffers(self.buffer_decays, self.buffer_scales)


class LocalRelease(_Event, frozen=True, kw_only=True, tag="local"):
    """One attempt at a round in which each device noises its own update before sending it.

    Neighbours are any two data sets of one person, and the coordinator is not trusted; so there
    is neither sampling nor an aggregate to hide in.

    Attributes:
        noise_multiplier: z: each device's noise standard deviation over 2C, the distance of any
            two clipped updates.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)


class _MaskedEvent(_Event, frozen=True, kw_only=True):
    """Noised sums under masks, one for each group of a cohort.

    A person is in one sum of an attempt. Nothing is amplified: the coordinator knows who took part.

    Attributes:
        noise_multiplier: z of everything in one sum, as one vector: standard deviation of the
            honest contributors' noise over the L2 sensitivity under ``adjacency``, as the grid
            enlarges it.
        adjacency: Neighbouring relation for which the sensitivity holds.
        honest_contributors: Contributors of each sum of whom it is believed that they add their
            share: those whose noise is z. What the shares cost for being discrete is in
            `privacy.accounting.discrete_noise`.
    """

    noise_multiplier: float
    adjacency: Adjacency
    honest_contributors: int

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        check_count(self.honest_contributors, "honest_contributors")


class MaskedAttempt(_MaskedEvent, frozen=True, kw_only=True, tag="masked-attempt"):
    """One attempt at a round, whose sums the coordinator may unmask, whatever comes of it.

    It counts against the coordinator alone: readers get nothing but a release.
    """


class MaskedRelease(_MaskedEvent, frozen=True, kw_only=True, tag="masked"):
    """One round's model, made from the sums of the attempt that closed it.

    It counts against readers alone: the coordinator has paid for the sums with the attempt.
    """


class EvaluationRelease(_GaussianEvent, frozen=True, kw_only=True, tag="evaluation"):
    """Counts measured on held-out devices."""


class UnprotectedRelease(_Event, frozen=True, kw_only=True, tag="unprotected"):
    """A release without any guarantee: from here on epsilon is infinite.

    Attributes:
        mode: The noise mode. The paper's noise is not scaled to a sensitivity, so it counts as
            none.
    """

    mode: Literal["none", "paper", "paper-server"]


PrivacyEvent = (
    GaussianRelease
    | TreeRelease
    | BufferedRelease
    | LocalRelease
    | MaskedAttempt
    | MaskedRelease
    | EvaluationRelease
    | UnprotectedRelease
)

_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER: msgspec.json.Decoder[PrivacyEvent] = msgspec.json.Decoder(PrivacyEvent, strict=True)

_LARGEST_EVENT_BYTES = 64 << 10


class EventError(ValueError):
    """Raised when bytes are no privacy event in its one canonical form."""


def canonical_bytes(event: PrivacyEvent) -> bytes:
    """Return the event as JSON with sorted keys: one form for one event, whoever wrote it."""
    # Read back once, so that an integer given for a float is written as the float it means.
    return _ENCODER.encode(_DECODER.decode(_ENCODER.encode(event)))


def read_event(data: bytes) -> PrivacyEvent:
    """Return the event of its canonical bytes; EventError for any others."""
    if len(data) > _LARGEST_EVENT_BYTES:
        raise EventError(f"privacy event must have at most {_LARGEST_EVENT_BYTES} bytes")
    try:
        # By itself, not by `decode_json`: nothing but the canonical form is taken below, which
        # gives each key once.
        event = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise EventError(f"privacy event cannot be read: {error}") from None
    if _ENCODER.encode(event) != data:
        raise EventError("privacy event must be in its canonical form: sorted keys, no spaces")
    return event
