"""A task with words has a list of them, and a task without has none."""

import msgspec
import pytest

from models.plan.word_rules import TASKS_NEED_WORDS, check_words, word_count
from models.settings.model import GruLmSettings, TransformerLmSettings
from models.tasks.registry import TASKS

WORDS = GruLmSettings(vocabulary_size=10, hidden_size=2)


class Pictures(msgspec.Struct, tag_field="family", tag="pictures"):
    """Stand for the settings of a model that predicts no words."""


def test_every_task_says_whether_it_has_words() -> None:
    assert set(TASKS) <= set(TASKS_NEED_WORDS)


def test_models_of_words_know_how_many() -> None:
    assert word_count(WORDS) == 10
    assert word_count(TransformerLmSettings(vocabulary_size=12)) == 12
    assert word_count(Pictures()) is None


@pytest.mark.parametrize(
    ("task", "model", "size"),
    [
        ("next_word", WORDS, 10),
        ("image_classification", Pictures(), None),
        # An unknown task is refused where it is looked up, with the names there are.
        ("chess", WORDS, 10),
        ("chess", Pictures(), None),
    ],
)
def test_what_fits_together_passes(task: str, model: msgspec.Struct, size: int | None) -> None:
    check_words(task, model, size)


@pytest.mark.parametrize(
    ("task", "model", "size", "message"),
    [
        ("next_word", WORDS, None, 'task "next_word" needs a word list; give vocabulary'),
        ("next_word", WORDS, 11, "must equal vocabulary.size 11, got 10"),
        ("next_word", Pictures(), 10, 'needs a model of words, got model.family = "pictures"'),
        ("image_classification", Pictures(), 10, "has no words; remove vocabulary"),
        ("next_character", WORDS, None, 'needs another model than "gru_lm", which is of words'),
    ],
)
def test_what_is_missing_or_too_much_is_named(
    task: str, model: msgspec.Struct, size: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_words(task, model, size)
