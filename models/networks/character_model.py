"""The check of a text's length that all next-character models make."""

from torch import Tensor


def check_fits(characters: Tensor, context_size: int) -> None:
    """Raise ``ValueError`` if a call holds more characters than the model's context."""
    if characters.shape[1] > context_size:
        raise ValueError(
            f"a text must have at most {context_size} characters, got {characters.shape[1]}"
        )
