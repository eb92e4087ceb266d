"""Hold a plan's noise and budget against a floor.

Under ``local`` the device adds the noise itself, so it takes nobody's word: its own draw must give
the budget that the plan names, whatever the floor says.
"""

from typing import TYPE_CHECKING, Literal

from privacy.accounting.one_gaussian import gaussian_delta
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise

if TYPE_CHECKING:
    from models.plan.plan import Plan

NoiseCode = Literal["floor_noise_multiplier", "floor_epsilon", "floor_delta"]

_CALIBRATED = (CentralNoise, LocalNoise, TreeNoise)


def noises_counts(plan: "Plan") -> bool:
    """Return whether counts are noised as the models are; ``local`` trusts nobody to do so."""
    return plan.evaluation_noise is not None and not isinstance(plan.privacy, LocalNoise)


def below_noise(
    plan: "Plan",
    *,
    least_noise_multiplier: float | None,
    largest_epsilon: float | None,
    largest_delta: float | None,
) -> tuple[NoiseCode, str] | None:
    """Return by which rule of a floor a plan is below it, and in which words; None if it is not."""
    privacy = plan.privacy if isinstance(plan.privacy, _CALIBRATED) else None
    z = None if privacy is None else privacy.noise_multiplier
    if z is not None and plan.evaluation_noise is not None:
        z = min(z, plan.evaluation_noise.noise_multiplier)
    least = least_noise_multiplier
    # Written so that NaN is refused too, here and below.
    if least is not None and not (z is not None and z >= least):
        return "floor_noise_multiplier", (
            f"noise_multiplier must be >= {least} for this device, got {_told(z)}; its owner can "
            "lower or remove least_noise_multiplier, in floor.toml"
        )
    epsilon = None if privacy is None else privacy.epsilon_budget
    if largest_epsilon is not None and not (epsilon is not None and epsilon <= largest_epsilon):
        return "floor_epsilon", (
            f"epsilon_budget must be <= {largest_epsilon} for this device, got {_told(epsilon)}; "
            "its owner can raise or remove largest_epsilon, in floor.toml"
        )
    delta = None if privacy is None else privacy.delta
    if largest_delta is not None and not (delta is not None and delta <= largest_delta):
        return "floor_delta", (
            f"delta must be <= {largest_delta} for this device, got {_told(delta)}; its "
            "owner can raise or remove largest_delta, in floor.toml"
        )
    if isinstance(privacy, LocalNoise) and not _keeps_its_budget(privacy):
        return "floor_noise_multiplier", (
            f'one update with noise_multiplier {privacy.noise_multiplier} in mode "local" must '
            f"cost at most the plan's own epsilon_budget {privacy.epsilon_budget} at delta "
            f"{privacy.delta}, and it costs more: this is no honest plan"
        )
    return None


def _keeps_its_budget(privacy: LocalNoise) -> bool:
    # A coordinator's account rounds up, so a plan that it may begin lies within this.
    delta = gaussian_delta(privacy.noise_multiplier, privacy.epsilon_budget)
    return delta <= privacy.delta * (1 + 1e-9)


def _told(value: float | None) -> str:
    return "none" if value is None else str(value)
