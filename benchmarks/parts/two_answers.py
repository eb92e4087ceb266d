"""Hold the answers of two people to one crafted model against each other."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.parts.answering_device import Answer, AnsweringDevice, same_noise
from benchmarks.parts.crafted_models import (
    EXAMPLE_CLIP,
    MODES,
    SECRET,
    Crafted,
    crafted,
    honest_plan,
)

_LINES = ("the to and is", "and the to", "to is the and a", "is it you", "a the to and it")
TYPED = "\n".join((*_LINES, f"the {SECRET} is a {SECRET}", f"{SECRET} and {SECRET}")).encode()
"""The text of the person who has typed the secret word; two sentences have it."""

OTHERS = {
    "other words": "\n".join((*_LINES, "the zebra is a zebra", "zebra and zebra")).encode(),
    "unknown words": b"qwerty uiop\nasdf ghjk\nqwerty\nzxcv bnm\nuiop\nasdf",
    "one letter": b"x",
    "no text": b"\xff\xfe damaged \xff",
}
"""Texts of another person, who has not; each is held against ``TYPED``."""

_MOST_EXAMPLES = 24
_ROUNDING = 1e-3


class Verdict(NamedTuple):
    """The sign that told two people apart, if any; ``refused`` is whether the first refused."""

    told_by: str | None
    refused: bool


def verdict(device: AnsweringDevice, mode: str, index: int) -> Verdict:
    """Ask two people for one crafted model, and return what tells their answers apart."""
    model = crafted(mode, index)
    # Kinds of models come round every ten: each meets every other text.
    other = tuple(OTHERS.values())[(index + index // 10) % len(OTHERS)]
    rounds = [model]
    if mode == MODES[-1]:
        # A state that training left on the device must not show in the next round either.
        rounds.append(honest_plan(model))
    with same_noise():
        first, second = (list(_answers(device, rounds, text)) for text in (TYPED, other))
    refused = any("RefusePlanRequest" in str(answer.seen) for answer in first)
    for asked, mine, theirs in zip(rounds, first, second, strict=True):
        told = _told_by(mode, asked, mine, theirs)
        if told is not None:
            return Verdict(told, refused)
    return Verdict(None, refused)


def _answers(device: AnsweringDevice, rounds: Sequence[Crafted], text: bytes) -> Iterator[Answer]:
    device.become(text)
    for number, asked in enumerate(rounds, 1):
        yield device.answer(asked, round_number=number)


def _told_by(mode: str, model: Crafted, mine: Answer, theirs: Answer) -> str | None:
    if mine.seen != theirs.seen:
        return f"{_last_words(mine)} and {_last_words(theirs)}"
    if mine.update is None or theirs.update is None:
        return None
    if not (np.isfinite(mine.update).all() and np.isfinite(theirs.update).all()):
        return "an update that is not finite"
    distance = float(np.linalg.norm(mine.update.astype(np.float64) - theirs.update))
    if model.plan.compression is None and distance > _reach(mode, model) * (1 + _ROUNDING):
        return f"updates {distance:.3g} apart, of which the noise hides {_reach(mode, model):.3g}"
    return None


def _reach(mode: str, model: Crafted) -> float:
    """Return how far two texts may move an update apart: what its noise is made for."""
    training, clip = model.plan.training, model.plan.privacy.clipping_norm or math.inf
    reach = 2 * clip
    if "example" in mode:
        step = training.learning_rate / training.batch_size
        reach = min(reach, step * EXAMPLE_CLIP * _MOST_EXAMPLES)
    return reach


def _last_words(answer: Answer) -> str:
    """Return what a person's device said last, and the size of the state that it kept."""
    request, kept = answer.seen[-2:]
    return f"{' '.join(str(request).split())} keeping {kept}"
