from typing import Any

import pytest
from torch.testing import assert_close

from models.plan.plan import TrainingSettings
from models.settings.learning_rate import LearningRateDecay


def test_the_step_size_falls_by_the_same_factor_every_round_and_then_stays() -> None:
    training = TrainingSettings(
        learning_rate=0.8, batch_size=1, decay=LearningRateDecay(last_round=5, final_share=1 / 16)
    )

    rates = [training.at_round(number).learning_rate for number in (1, 2, 3, 4, 5, 6, 100)]

    # 16 = 2^4: four halvings.
    assert_close(rates, [0.8, 0.4, 0.2, 0.1, 0.05, 0.05, 0.05])


def test_without_decay_every_round_is_alike() -> None:
    training = TrainingSettings(learning_rate=0.8, batch_size=1)

    assert training.at_round(1) == training.at_round(1000) == training


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"last_round": 1}, "last_round must be >= 2, got 1"),
        ({"final_share": 0.0}, r"final_share must be in \(0, 1\], got 0.0"),
        ({"final_share": 1.5}, r"final_share must be in \(0, 1\], got 1.5"),
    ],
)
def test_a_decay_that_makes_no_sense_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LearningRateDecay(**{"last_round": 10, "final_share": 0.1, **wrong})
