"""Settings of mode ``masked``: the coordinator learns a noised sum and opens no update.

References:
    Kairouz et al., "The Distributed Discrete Gaussian Mechanism for Federated Learning with
        Secure Aggregation", ICML 2021, arXiv:2102.06387 (noise from the devices).
"""

import math
from typing import Literal

from privacy.accounting.checked_values import check_count, check_epsilon
from privacy.clipping.adaptive import aggregate_noise_multiplier
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import NEIGHBOURS, Calibrated

LONGEST_ROUND_S = 7 * 24 * 3600.0
"""Longest round of masked sums. Seeds of a later deadline could be asked for years from now, of a
helper whose list was put back from a backup."""


class MaskedNoise(Calibrated, frozen=True, kw_only=True, tag="masked"):
    """Noise of the devices on a sum that a second party, the helper, helps to unmask.

    Attributes:
        adjacency: Neighbouring relation, as in ``CentralNoise``.
        coordinator_epsilon_budget: ε that the whole run may spend against the coordinator at
            ``delta``. It knows who took part, so sampling amplifies nothing, and every attempt is
            charged. ``epsilon_budget`` is against readers of the released models.
        honest_share: Share of the fewest contributors of a sum of whom it is believed that they add
            their noise, in (0, 1]; the noise counts as theirs alone.
        groups: Groups of a cohort, each unmasked for itself; a device's is its slot modulo them.
        adaptive_clipping: As in ``CentralNoise``; who fitted is summed under the mask too.
    """

    adjacency: Literal["zero-out", "replace-one"]
    coordinator_epsilon_budget: float
    honest_share: float
    groups: int = 1
    adaptive_clipping: AdaptiveClipping | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.coordinator_epsilon_budget, "coordinator_epsilon_budget")
        check_count(self.groups, "groups")
        if not 0 < self.honest_share <= 1:
            raise ValueError(f"honest_share must lie in (0, 1], got {self.honest_share}")
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

    def least_contributors(self, quorum: int) -> int:
        """Return the fewest updates of one unmasked sum, from the fewest of a round.

        Raises:
            ValueError: If a group could be empty.
        """
        least = quorum // self.groups
        if least < 1:
            raise ValueError(
                f"rounds.quorum must be >= privacy.groups {self.groups}, got {quorum}: no group "
                "may be empty"
            )
        return least

    def honest_contributors(self, quorum: int) -> int:
        """Return how many of a sum's contributors are believed to add their noise, at least 1."""
        return share_of_devices(self.honest_share, self.least_contributors(quorum))

    @property
    def guarantee(self) -> str:
        """Return what the mode promises, in one line for configuration, logs and reports."""
        return (
            f"masked: {self._budget}, from readers of the released models, and epsilon "
            f"{self.coordinator_epsilon_budget:g} from the coordinator, which opens no update and "
            f"learns noised sums alone as long as it and the helper do not join; "
            f"{NEIGHBOURS[self.adjacency]}; noise of {self.noise_multiplier:g} times the "
            f"sensitivity if {self.honest_share:.0%} of the fewest contributors add theirs"
        )


def share_of_devices(share: float, count: int) -> int:
    """Return a share of so many devices, rounded up, at least 1."""
    # Rounded first: 0.07 * 100 is 7.000000000000001, and that is not eight devices.
    return max(1, math.ceil(round(share * count, 9)))
