"""Refuse plans that hide each example of a person and cannot. No torch."""

from models.settings.model import ModelSettings, WordModelSettings
from models.settings.personalisation import PersonalisationSettings


def check_private_examples(
    task: str, model: ModelSettings, personalisation: PersonalisationSettings
) -> None:
    """Check that task, model and method go with ``example_privacy``, else ValueError."""
    if isinstance(model, WordModelSettings) and model.dropout > 0:
        raise ValueError(
            f"model.dropout must be 0 with example_privacy, got {model.dropout}: its "
            "draws follow from the plan's seed, and go to an example by its place in the batch"
        )
    for name, value, known in (
        ("task", task, "next_word"),
        ("personalisation.method", personalisation.method, "global"),
    ):
        if value != known:
            raise ValueError(
                f'{name} must be "{known}" with example_privacy, got "{value}": gradients of '
                "each example are known for that only"
            )
