"""Settings of example-level privacy: what one sentence of a person can change in their own update.

This is a second layer. The noise modes of ``privacy.noise.settings`` hide whether a person took
part; this hides one sentence among all that the same person typed, and is applied on the device
before anything leaves it.

The unit is one example: a sentence of at most ``bptt_steps`` tokens, or such a piece of a longer
one. Neighbours are two texts of one person, one of which has one example more. A window of a
running text would be no unit: where text is added or deleted between two rounds, every later
window holds other words.

References:
    [DP-SGD] Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, arXiv:1607.00133.
"""

import math

import msgspec

from privacy.accounting.checked_values import check_delta, check_sampling_rate

LOCAL_EPOCHS = 1
"""Passes over a device's own data in one round where a federation names none; E."""


class ExampleEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equal steps of DP-SGD on one device, as an accountant needs them.

    z is over the clipping norm of one example; the rate is the chance of one example in one step.
    """

    noise_multiplier: float
    sampling_rate: float
    step_count: int

    def __post_init__(self) -> None:
        _check_positive("noise_multiplier", self.noise_multiplier)
        check_sampling_rate(self.sampling_rate)
        if self.step_count < 1:
            raise ValueError(f"step_count must be >= 1, got {self.step_count}")


class ExamplePrivacySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much one example can move a step of local training, and what hides it.

    Every value is the same for everybody: neither the number of steps nor what a step is divided
    by may tell how much a person typed.

    Attributes:
        clipping_norm: Largest L2 norm of one example's gradient over all layers together.
        noise_multiplier: z: standard deviation of the noise on a step's sum of gradients over
            ``clipping_norm``.
        sampling_rate: q: chance of one example in one step, each example by a coin of its own.
        delta: Probability that epsilon is no bound, for the device's own accounting.
    """

    clipping_norm: float
    noise_multiplier: float
    sampling_rate: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("clipping_norm", "noise_multiplier"):
            _check_positive(name, getattr(self, name))
        check_sampling_rate(self.sampling_rate)
        check_delta(self.delta)

    def step_count(self, local_epochs: int) -> int:
        """Return the steps of one round: an example is drawn ``local_epochs`` times on average."""
        return max(1, round(local_epochs / self.sampling_rate))

    def guarantee(self, local_epochs: int) -> str:
        """Return what the second layer promises, in one line for configuration and logs."""
        return (
            f"beside it each sentence of a person is hidden in their own update: each of "
            f"{self.step_count(local_epochs)} steps a round draws a sentence with chance "
            f"{self.sampling_rate:g}, clips its gradient to {self.clipping_norm:g} and adds noise "
            f"of {self.noise_multiplier:g} times that; each device accounts for its own"
        )

    def event(self, local_epochs: int) -> ExampleEvent:
        """Return what one round spends."""
        return ExampleEvent(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            step_count=self.step_count(local_epochs),
        )


def _check_positive(name: str, value: float) -> None:
    # Written so that NaN is refused too.
    if not 0 < value < math.inf:
        raise ValueError(
            f"{name} must be > 0 and finite, got {value}; for no privacy of examples leave "
            "example_privacy out"
        )
