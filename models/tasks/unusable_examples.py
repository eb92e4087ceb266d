"""The refusal of examples that a task cannot train on."""


class UnusableExamplesError(ValueError):
    """Raised when a person's examples cannot be trained on; reveals nothing of their content."""
