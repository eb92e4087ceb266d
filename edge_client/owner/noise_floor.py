"""Hold a plan's noise and budget against a floor.

Under ``local`` the device adds the noise itself, so it takes nobody's word: its own draw must give
the budget that the plan names, whatever the floor says. Under ``masked`` one sum must keep the
budget against the coordinator.
"""

from typing import TYPE_CHECKING, Literal

from privacy.accounting.one_gaussian import gaussian_delta
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.masked_settings import MaskedNoise

if TYPE_CHECKING:
    from models.plan.plan import Plan

NoiseCode = Literal["floor_noise_multiplier", "floor_epsilon", "floor_delta"]

_CALIBRATED = (CentralNoise, LocalNoise, MaskedNoise, TreeNoise)


def noises_counts(plan: "Plan") -> bool:
    """Return whether counts are noised as the models are.

    ``local`` trusts nobody to do so, and under ``masked`` the coordinator sees nothing of one
    device.
    """
    trusts_nobody = isinstance(plan.privacy, LocalNoise | MaskedNoise)
    return plan.evaluation_noise is not None and not trusts_nobody


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
    budgets = {"epsilon_budget": None if privacy is None else privacy.epsilon_budget}
    if isinstance(privacy, MaskedNoise):
        budgets["coordinator_epsilon_budget"] = privacy.coordinator_epsilon_budget
    for name, epsilon in budgets.items():
        if largest_epsilon is not None and not (epsilon is not None and epsilon <= largest_epsilon):
            return "floor_epsilon", (
                f"{name} must be <= {largest_epsilon} for this device, got {_told(epsilon)}; its "
                "owner can raise or remove largest_epsilon, in floor.toml"
            )
    delta = None if privacy is None else privacy.delta
    if largest_delta is not None and not (delta is not None and delta <= largest_delta):
        return "floor_delta", (
            f"delta must be <= {largest_delta} for this device, got {_told(delta)}; its "
            "owner can raise or remove largest_delta, in floor.toml"
        )
    return _dishonest(plan)


def _dishonest(plan: "Plan") -> tuple[NoiseCode, str] | None:
    """Return in which words one update would cost more than its plan's own budget; None if not."""
    privacy = plan.privacy
    if isinstance(privacy, LocalNoise):
        name, budget = "epsilon_budget", privacy.epsilon_budget
    elif isinstance(privacy, MaskedNoise):
        name, budget = "coordinator_epsilon_budget", privacy.coordinator_epsilon_budget
    else:
        return None
    # A coordinator's account rounds up, so a plan that it may begin lies within this.
    if gaussian_delta(privacy.noise_multiplier, budget) <= privacy.delta * (1 + 1e-9):
        return None
    return "floor_noise_multiplier", (
        f"one update with noise_multiplier {privacy.noise_multiplier} in mode "
        f'"{privacy.__struct_config__.tag}" must cost at most the plan\'s own {name} {budget} at '
        f"delta {privacy.delta}, and it costs more: this is no honest plan"
    )


def _told(value: float | None) -> str:
    return "none" if value is None else str(value)
