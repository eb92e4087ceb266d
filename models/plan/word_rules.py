"""Which tasks need a list of words, and that task, model and list agree. No torch.

Images, characters, voices, vocoders and plugins' tasks have no words: their federations, plans and
releases have no list.
"""

from collections.abc import Mapping

import msgspec

from models.plugins.loaded import has_part
from models.plugins.parts import Part
from models.settings.model import GruLmSettings, TransformerLmSettings

TASKS_NEED_WORDS: Mapping[str, bool] = {
    "next_word": True,
    "next_character": False,
    "image_classification": False,
    "sequence": False,
    "speech": False,
    "vocoder": False,
}
"""Whether each task's examples are words of a list. A task that is not here is refused where it is
looked up, by name."""


def word_count(model: msgspec.Struct) -> int | None:
    """Return how many words a model predicts; None if it predicts something else."""
    if isinstance(model, GruLmSettings | TransformerLmSettings):
        return model.vocabulary_size
    return None


def check_words(task: str, model: msgspec.Struct, size: int | None) -> None:
    """Check that a task which needs words has a model and a list of one size, and no other has."""
    if task not in TASKS_NEED_WORDS and not has_part(Part.TASKS, task):
        return
    count, family = word_count(model), model.__struct_config__.tag
    if not TASKS_NEED_WORDS.get(task, False):
        if size is not None:
            raise ValueError(f'task "{task}" has no words; remove vocabulary')
        if count is not None:
            raise ValueError(
                f'task "{task}" needs another model than "{family}", which is of words'
            )
        return
    if count is None:
        raise ValueError(f'task "{task}" needs a model of words, got model.family = "{family}"')
    if size is None:
        raise ValueError(f'task "{task}" needs a word list; give vocabulary')
    if count != size:
        raise ValueError(f"model.vocabulary_size must equal vocabulary.size {size}, got {count}")
