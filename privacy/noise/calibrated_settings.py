"""Settings of the noise modes that carry a guarantee: ``local``, ``central`` and ``ftrl``.

The unit of privacy is the enrolled person in every one of them. No value that decides the
guarantee has a default, and nothing here is a promise by itself: the coordinator's ledger counts
what is released and stops the run before its budget would be passed.

References:
    McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018,
        arXiv:1710.06963 (``central``).
    Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling",
        ICML 2021, arXiv:2103.00039 (``ftrl``, ``tree``).
    McMahan, Xu, Zhang, "A Hassle-free Algorithm for Private Learning in Practice: Don't Use Tree
        Aggregation, Use BLTs", EMNLP 2024, arXiv:2408.08868 (``ftrl``, ``blt``).
"""

from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from privacy.accounting.checked_values import (
    check_buffers,
    check_count,
    check_delta,
    check_epsilon,
    check_noise_multiplier,
)
from privacy.clipping.adaptive import aggregate_noise_multiplier
from privacy.clipping.settings import AdaptiveClipping, ClippingSettings

NEIGHBOURS = {
    "zero-out": "neighbours differ in all of one person's updates being replaced by zeros",
    "replace-one": "neighbours differ in all of one person's updates being replaced by any others",
}
"""The neighbouring relations at a fixed number of slots, in words."""

NoiseOn = Literal["mean", "sums"] | UnsetType
"""What is noised. Unset is ``mean`` and is left out when written, so that older ends read it."""

_ON_SUMS = " of the sums of updates and of weights, which are divided after it"


class Calibrated(ClippingSettings, frozen=True, kw_only=True, tag_field="mode"):
    """Settings that every mode with a guarantee has.

    Attributes:
        clipping_norm: C, largest L2 norm of a client update over all layers together, in
            parameter units.
        noise_multiplier: z, noise standard deviation over the L2 sensitivity of what it is added
            to; > 0.
        delta: δ, the chance that the bound on ε fails; keep it below 1 / population.
        epsilon_budget: ε that the whole run may spend at that δ; the run stops before it.
    """

    # A bound: no weight, norm, count or loss of one client is shown.
    guarantees_privacy: ClassVar[bool] = True

    # Narrowed, and without its default: no guarantee without a clip.
    clipping_norm: float
    noise_multiplier: float
    delta: float
    epsilon_budget: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noise_multiplier(self.noise_multiplier)
        check_delta(self.delta)
        check_epsilon(self.epsilon_budget, "epsilon_budget")

    @property
    def _budget(self) -> str:
        return (
            f"({self.epsilon_budget:g}, {self.delta:g})-differential privacy for one person over "
            "the whole run"
        )


class LocalNoise(Calibrated, frozen=True, kw_only=True, tag="local"):
    """Noise of each device on its own update, so that nobody else has to be trusted.

    Neighbours are any two data sets of one person. Two clipped updates lie up to 2C apart, so
    each element gets N(0, (z 2C)²): a model of millions of parameters is destroyed by it.
    """

    @property
    def guarantee(self) -> str:
        """Return what the mode promises, in one line for configuration, logs and reports."""
        std = self.noise_multiplier * 2 * self.clipping_norm
        return (
            f"local: {self._budget}, also from the coordinator; neighbours are any two data sets "
            f"of one person; each device adds N(0, {std:g}^2) to every parameter of its update, "
            "which destroys models of this size"
        )


class CentralNoise(Calibrated, frozen=True, kw_only=True, tag="central"):
    """The coordinator's noise on the aggregate of clipped updates over a fixed number of slots.

    Attributes:
        adjacency: Neighbouring relation: ``zero-out`` replaces all of one person's updates by
            zeros (an empty slot is the same), ``replace-one`` by any others.
        adaptive_clipping: How the clipping norm follows the clients' norms; absent keeps it.
            Noising the count of those that fit is part of z: the aggregate's noise is a little
            larger for it.
        noise_on: ``mean`` noises the weighted mean over all places, ``sums`` the sums of weighted
            updates and of weights, which are divided afterwards: less noise for the same ε under
            attention, in cohorts of a hundred and more.
    """

    adjacency: Literal["zero-out", "replace-one"]
    noise_on: NoiseOn = UNSET
    adaptive_clipping: AdaptiveClipping | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # Refuses a count behind the clip that would spend more than z allows.
        _ = self.aggregate_noise_multiplier

    @property
    def adaptation(self) -> AdaptiveClipping | None:
        """Return how the clipping norm follows the clients' norms; None where it stays."""
        return self.adaptive_clipping

    @property
    def aggregate_noise_multiplier(self) -> float:
        """Return the aggregate's own multiplier; with the noised count beside it they are z."""
        if self.adaptive_clipping is None:
            return self.noise_multiplier
        return aggregate_noise_multiplier(
            self.noise_multiplier, self.adaptive_clipping, adjacency=self.adjacency
        )

    @property
    def guarantee(self) -> str:
        """Return what the mode promises, in one line for configuration, logs and reports."""
        summed = _ON_SUMS if self.noise_on == "sums" else ""
        counted = "" if self.adaptive_clipping is None else ", the count behind the clip included"
        return (
            f"central: {self._budget}, from readers of the released models; "
            f"{NEIGHBOURS[self.adjacency]}; noise of {self.noise_multiplier:g} times the "
            f"sensitivity{summed}{counted}; the coordinator itself sees clipped updates "
            "while a round closes"
        )


class TreeNoise(Calibrated, frozen=True, kw_only=True, tag="ftrl"):
    """The coordinator's noise on prefix sums, correlated over rounds; no sampling is assumed.

    Attributes:
        adjacency: As in ``CentralNoise``.
        min_separation: Least distance in rounds of two participations of one person; 1 is every
            round.
        max_participation: Most rounds in which one person takes part, enrolling again included.
        restart_rounds: For ``tree``, rounds after which a new tree begins; absent is one tree for
            the run. A restart costs privacy and keeps the noise of late rounds small.
        mechanism: ``tree`` draws noise along a binary tree. ``blt`` (buffered linear Toeplitz)
            leaves less in the model and holds 8 bytes a parameter and buffer. Absent is ``tree``,
            and stays out of what is encoded: plans and digests of before keep their bytes.
        buffer_decays: For ``blt``, θ of every buffer, in (0, 1), as ``sotto-privacy noise`` prints
            them for a plan's rounds and limits. They stand in the file, since a later release of a
            library could find others in mid-run.
        buffer_scales: For ``blt``, ω of every buffer, above 0; at most 1 together.
        noise_on: As in ``CentralNoise``. It stays as it is for a whole run: a later round takes
            out noise that an earlier one put in.
    """

    adjacency: Literal["zero-out", "replace-one"]
    noise_on: NoiseOn = UNSET
    min_separation: int
    max_participation: int
    restart_rounds: int | None = None
    mechanism: Literal["tree", "blt"] | UnsetType = UNSET
    buffer_decays: tuple[float, ...] | UnsetType = UNSET
    buffer_scales: tuple[float, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.min_separation, "min_separation")
        check_count(self.max_participation, "max_participation")
        if self.restart_rounds is not None:
            check_count(self.restart_rounds, "restart_rounds")
        if self.mechanism == "blt":
            self._check_buffers()
        elif (self.buffer_decays, self.buffer_scales) != (UNSET, UNSET):
            raise ValueError('buffer_decays and buffer_scales belong to mechanism = "blt"')

    def _check_buffers(self) -> None:
        if self.restart_rounds is not None:
            raise ValueError(
                'restart_rounds belongs to mechanism = "tree"; with "blt" leave it out: its noise '
                "is made for the rounds of the whole run"
            )
        if self.buffers is None:
            raise ValueError(
                'mechanism = "blt" needs buffer_decays and buffer_scales; `sotto-privacy noise '
                "--mode ftrl --mechanism blt` prints them"
            )
        check_buffers(*self.buffers)

    @property
    def buffers(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Return decays and scales of the noise's buffers; None for a tree."""
        if isinstance(self.buffer_decays, UnsetType) or isinstance(self.buffer_scales, UnsetType):
            return None
        return self.buffer_decays, self.buffer_scales

    @property
    def noise_in_words(self) -> str:
        """Return what the noise is drawn along, such as ``tree noise``."""
        if self.buffers is None:
            return "tree noise"
        return f"noise through {len(self.buffers[0])} buffers"

    @property
    def guarantee(self) -> str:
        """Return what the mode promises, in one line for configuration, logs and reports."""
        summed = _ON_SUMS if self.noise_on == "sums" else ""
        return (
            f"ftrl: {self._budget}, from readers of the released models; "
            f"{NEIGHBOURS[self.adjacency]}; {self.noise_in_words} of {self.noise_multiplier:g} "
            f"times the sensitivity{summed}; one person takes part at most "
            f"{self.max_participation} times, "
            f"at least {self.min_separation} rounds apart; the coordinator itself sees clipped "
            "updates while a round closes"
        )

    def place_in_tree(self, round_number: int) -> tuple[int, int]:
        """Return the number of a round's tree, from 0, and of its leaf in it, from 1."""
        if self.restart_rounds is None:
            return 0, round_number
        tree, leaf = divmod(round_number - 1, self.restart_rounds)
        return tree, leaf + 1
