"""The refusal of a measure whose package is not there."""


class MissingMeasureError(RuntimeError):
    """Raised when a measure needs a package that is not installed; says which, and the remedy."""
