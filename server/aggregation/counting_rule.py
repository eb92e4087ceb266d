"""What every aggregation rule can say of the updates it took, whatever it does with them."""

from server.aggregation.measured_update import Intake


class CountingRule:
    """Count updates; the properties are those of ``AggregationRule``."""

    def __init__(self, intake: Intake) -> None:
        """Take updates through an intake, which counts them."""
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
