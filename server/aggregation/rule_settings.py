"""The settings that every aggregation rule has."""

from privacy.clipping.rule_settings import ServerStep


class RuleSettings(
    ServerStep, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="rule"
):
    """The settings that every rule has."""

    @property
    def look_back(self) -> int:
        """Return how many rounds back the rule asks what the model was; 0 for never."""
        return 0
