"""Hold a received model against bounds that no honest one reaches, before any text is read.

Where a plan hides the text from the coordinator, the model is the coordinator's own choice. What
the text makes of it never shows in what a device answers; these bounds keep it out of what takes
time and out of the reach of infinity as well.
"""

import torch
from torch import Tensor

LARGEST_PARAMETER = 1e6
"""Largest element of a model that is trained where the plan hides the text.

Presets ``keyboard-tiny`` and ``fedtp-digits`` end with none above 9. Mode ``local`` is what moves
parameters far: z = 10 and C = 10 took an element to 2,092 in 30 rounds of six devices, and it grows
with the root of the rounds.
"""

_LEAST_NORMAL = torch.finfo(torch.float32).tiny


class UnusableModelError(ValueError):
    """Raised when a model is not one that any training ends in; says nothing of a text."""


def check_received(parameters: Tensor) -> None:
    """Accept finite parameters, flat float32, of at most ``LARGEST_PARAMETER`` each.

    Numbers below float32's normal range become 0, in place. Processors take up to 200 times as long
    over them, so that the time of an answer would tell whose text meets them.

    Raises:
        UnusableModelError: If an element is larger, or NaN.
    """
    low, high = torch.aminmax(parameters) if len(parameters) else (torch.zeros(()),) * 2
    largest = max(-float(low), float(high))
    # Written so that NaN is refused too.
    if not largest <= LARGEST_PARAMETER:
        raise UnusableModelError(
            f"every parameter must be within {LARGEST_PARAMETER:g} of 0, the largest is {largest:g}"
        )
    parameters.masked_fill_(parameters.abs() < _LEAST_NORMAL, 0)
