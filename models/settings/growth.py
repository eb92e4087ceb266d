"""When a Transformer gets its layers. No torch.

Training starts with L/c layers in each stack and adds L/c on top every T/c rounds, so that early
rounds move and train fewer parameters.

References:
    [FedDT-TTS] arXiv:2107.08795, algorithm 1.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from models.settings.bounds import check_at_least


class GrowthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many layers there are in the end, and in how many stages they come.

    Attributes:
        target_layer_count: Layers of each stack after the last stage; L.
        stage_count: Stages of equal numbers of layers; c. 1 is no growth.
        round_count: Rounds that the stages divide among themselves; T. Later rounds stay at the
            target.
        start: How new layers start. ``zero`` zeroes their outputs to the residual stream, so that
            the model's predictions do not change; ``random`` draws all of them as at the run's
            start, as the paper does.
    """

    target_layer_count: int
    stage_count: int
    round_count: int
    start: Literal["zero", "random"] = "zero"

    def __post_init__(self) -> None:
        check_at_least(self, 1, "target_layer_count", "stage_count", "round_count")
        if self.target_layer_count % self.stage_count:
            raise ValueError(
                f"target_layer_count must be a multiple of stage_count {self.stage_count}, got "
                f"{self.target_layer_count}: every stage adds the same number of layers"
            )
        if self.round_count < self.stage_count:
            raise ValueError(
                f"round_count must be >= stage_count {self.stage_count}, got {self.round_count}: "
                "every stage needs a round to be trained in"
            )


def growth_stage(settings: GrowthSettings, round_number: int) -> int:
    """Return the stage in [1, c] of a round, counted from 1; rounds beyond T are in the last.

    Where c does not divide T, stages differ in length by one round at most.
    """
    if round_number < 1:
        raise ValueError(f"round_number must be >= 1, got {round_number}")
    # floor((t - 1) / (T / c)) in whole numbers: a float quotient can fall just short of a stage.
    whole_stages = (round_number - 1) * settings.stage_count // settings.round_count
    return min(1 + whole_stages, settings.stage_count)


def layer_count_of_stage(settings: GrowthSettings, stage: int) -> int:
    """Return the layers of each stack in a stage in [1, c]: (L/c) times the stage."""
    if not 1 <= stage <= settings.stage_count:
        raise ValueError(f"growth_stage must be in [1, {settings.stage_count}], got {stage}")
    return settings.target_layer_count // settings.stage_count * stage


def layer_count(settings: GrowthSettings, round_number: int) -> int:
    """Return l_t = (L/c)(1 + floor((t-1)/(T/c))), the layers of each stack in a round."""
    return layer_count_of_stage(settings, growth_stage(settings, round_number))


def growth_rounds(settings: GrowthSettings) -> Iterator[int]:
    """Yield the rounds that start with new layers, in order: c - 1 of them."""
    for round_number in range(2, settings.round_count + 1):
        if growth_stage(settings, round_number) > growth_stage(settings, round_number - 1):
            yield round_number


def layer_rounds(settings: GrowthSettings) -> int:
    """Return the sum of l_t over the T rounds, in proportion to a stack's training and traffic."""
    return sum(
        layer_count(settings, round_number) for round_number in range(1, settings.round_count + 1)
    )
