"""Settings of buffered asynchronous rounds, and what an update's age is worth.

In a synchronous round everybody starts from one release, and the slowest decides when it closes.
In a buffered one devices work on whatever release was newest when they asked, and the next is made
as soon as ``cohort_size`` updates have come, K in [FedBuff]. An update's staleness τ is the number
of releases made since the one it started from.

References:
    [FedBuff] Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS
        2022, arXiv:2106.06639, Algorithm 1 and section 5 (s(τ) = 1/√(1 + τ)).
    [FedAsync] Xie et al., "Asynchronous Federated Optimization", 2019, arXiv:1903.03934
        (polynomial weights (1 + τ)^-a).
"""

import math

import msgspec


class StalenessError(ValueError):
    """Raised for a staleness that no update can have."""


class BufferedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say how many devices work at one time, and how old an update may be.

    Attributes:
        concurrency: Devices that work at one time, at least 1; a few times ``cohort_size`` keeps
            slow devices from holding up fast ones.
        max_staleness: Most releases, from 0, that may be made while a device works; its update is
            refused afterwards. The coordinator holds as many sealed models, and one more.
        staleness_exponent: a, from 0: an update of staleness τ counts (1 + τ)^-a of a fresh one.
            0 counts all alike.
    """

    concurrency: int
    max_staleness: int = 10
    staleness_exponent: float = 0.5

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("max_staleness", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")
        if not 0 <= self.staleness_exponent < math.inf:
            raise ValueError(
                f"staleness_exponent must be >= 0 and finite, got {self.staleness_exponent}"
            )

    def worth(self, staleness: int) -> float:
        """Return what an update counts beside a fresh one, s(τ) = (1 + τ)^-a, in (0, 1].

        Args:
            staleness: τ, from 0.

        Raises:
            StalenessError: If no update that was taken can be that old, or it is from the future.
        """
        if staleness > self.max_staleness:
            raise StalenessError(
                f"staleness must be <= rounds.buffered.max_staleness {self.max_staleness}, "
                f"got {staleness}"
            )
        return math.pow(1 + checked_staleness(staleness), -self.staleness_exponent)


def staleness_of(base_round: int, round_number: int) -> int:
    """Return τ of an update that counts in one round and was begun in another.

    Args:
        base_round: Round that was open when its device got the model, from 1.
        round_number: Round that it counts in.

    Raises:
        StalenessError: If it was begun after that: it comes from the future.
    """
    return checked_staleness(round_number - base_round)


def checked_staleness(staleness: int) -> int:
    """Return a staleness that an update can have.

    Raises:
        StalenessError: If it is below 0: the update comes from the future.
    """
    if staleness < 0:
        raise StalenessError(
            f"staleness must be >= 0, got {staleness}: the update starts from a release that is "
            "still to be made"
        )
    return staleness
