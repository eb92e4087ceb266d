"""Every reader returns or refuses, whatever it is given, and neither takes long nor much memory."""

import random
from pathlib import Path

import pytest

from tests.fuzz.cost import LARGEST_INPUT_BYTES, cost_of
from tests.fuzz.hostile import inputs
from tests.fuzz.mutations import mutated
from tests.fuzz.registry import targets
from tests.fuzz.target import Prepared, Target

TARGETS = targets()
# A megabyte of JSON costs a tenth of a second, and all of a package's readers have one decoder.
LARGE_BYTES = 64 << 10
READ_LARGE_JSON = list(
    {one.name.split("/")[0]: one for one in TARGETS if "json" in one.hostile}.values()
)
EVERY = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def check(target: Target, prepared: Prepared, content: bytes) -> None:
    cost = cost_of(prepared.read, content)
    if cost.is_too_much:  # So it is every time, if it is the reader's and not the process's.
        cost = cost_of(prepared.read, content)
    if cost.error is not None and not isinstance(cost.error, target.refusals):
        raise cost.error
    if len(content) <= LARGEST_INPUT_BYTES:
        assert not cost.is_too_much, cost


@EVERY
def test_a_reader_takes_its_seeds(target: Target, tmp_path: Path) -> None:
    prepared = target.prepare(tmp_path)

    for seed in prepared.seeds:
        prepared.read(seed)


@EVERY
def test_a_reader_returns_or_refuses_whatever_became_of_its_seeds(
    target: Target, tmp_path: Path
) -> None:
    prepared = target.prepare(tmp_path)
    prepared.read(prepared.seeds[0])  # What is loaded with the first input is no cost of another.

    for draw in range(30):
        which = draw % len(prepared.seeds)
        check(target, prepared, mutated(prepared.seeds, which, random.Random(draw)))


@pytest.mark.slow
@EVERY
def test_a_reader_withstands_the_hostile_inputs_of_its_formats(
    target: Target, tmp_path: Path
) -> None:
    prepared = target.prepare(tmp_path)
    prepared.read(prepared.seeds[0])

    for form in target.hostile:
        for content in inputs(form):
            if form != "json" or len(content) <= LARGE_BYTES or target in READ_LARGE_JSON:
                check(target, prepared, content)
