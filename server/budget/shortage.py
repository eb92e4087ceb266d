"""The reason why no round can open among the enrolled devices, and what would change that."""

from privacy.noise.calibrated_settings import TreeNoise
from server.config.federation import FederationConfig


def shortage_of(config: FederationConfig, *, eligible: int, enrolled: int) -> str | None:
    """Say in a sentence or two why the next round cannot open; None if it can.

    ``eligible`` devices may take part in the round; ``enrolled`` ones are not revoked.
    """
    why = config.rounds.shortage(eligible)
    if why is None:
        return None
    others, privacy = enrolled - eligible, config.privacy
    if not others or not isinstance(privacy, TreeNoise):
        return f"{why}, or enrol more devices"
    # Their rest is counted in rounds that were released, not in days: waiting helps nobody.
    if not eligible:
        return (
            f"each of the {enrolled} enrolled devices {_barred(privacy)}; none of them will ever "
            "be eligible again unless new devices enrol"
        )
    return (
        f"{why}, or enrol more devices. Each of the {others} other enrolled devices "
        f"{_barred(privacy)}; none of them becomes eligible before another round is released"
    )


def _barred(privacy: TreeNoise) -> str:
    spent = f"has taken part {privacy.max_participation} times (privacy.max_participation)"
    if privacy.min_separation == 1:
        return spent
    rest = f"in one of the last {privacy.min_separation - 1} rounds (privacy.min_separation)"
    return f"{spent} or {rest}"
