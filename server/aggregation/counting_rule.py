"""The counts that every aggregation rule keeps of the updates it took."""

from server.aggregation.measured_update import Intake


class CountingRule:
    """The counts of an intake; the properties are those of ``AggregationRule``."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    @property
    def contribution_count(self) -> int:
        """Return how many clients were added."""
        return len(self._intake.slots)

    @property
    def clipped_count(self) -> int:
        """Return how many updates were above the clipping norm."""
        return self._intake.clipped_count

    @property
    def fitting_count(self) -> int:
        """Return how many updates fitted without being clipped, before noise."""
        return self._intake.fitting_count
