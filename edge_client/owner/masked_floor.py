"""Hold a plan against a floor that asks for masks, and a masked one against the fewest of a sum."""

from typing import TYPE_CHECKING, Literal

from privacy.noise.masked_settings import MaskedNoise

if TYPE_CHECKING:
    from models.plan.plan import Plan

MasksCode = Literal["floor_sums", "floor_cohort"]


def below_masks(
    plan: "Plan", *, sums: Literal["masked"] | None, least_cohort: int
) -> tuple[MasksCode, str] | None:
    """Return by which rule of a floor a plan is below it, and in which words; None if it is not.

    Under a floor of ``sums = "masked"`` nothing leaves but updates under masks; a fit that stays on
    the device is none of the coordinator's.
    """
    privacy = plan.privacy
    if sums == "masked" and not plan.sends_masked and plan.kind != "fit_personal":
        return "floor_sums", (
            "this device sends nothing but masked updates, of which the coordinator learns sums "
            f"alone; got a plan of kind {plan.kind} without masks; its owner can remove sums, in "
            "floor.toml"
        )
    if not isinstance(privacy, MaskedNoise):
        return None
    # A plan that does not say with how few a round may close lets it close with one.
    least = 0 if plan.quorum is None else plan.quorum // privacy.groups
    if least < least_cohort:
        return "floor_cohort", (
            "quorum // groups, the fewest devices of a sum that the coordinator learns, must be "
            f">= {least_cohort} for this device, got {least}; its owner can lower least_cohort, in "
            "floor.toml"
        )
    return None
