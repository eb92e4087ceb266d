"""Say which of coordinator and device runs the older software, where the two do not agree."""

import re

from protos.version import VERSION

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def older_side(coordinator: str) -> str:
    """Return which side is older and what to do; ``coordinator`` is empty if a lease lacks it."""
    theirs, ours = _numbers(coordinator), _numbers(VERSION)
    if theirs == ours:
        return (
            f"both say that they are sotto {VERSION}, so one of them was changed: install the same "
            "release on both"
        )
    older = "the coordinator" if theirs < ours else "this device"
    told = f"sotto {coordinator}" if coordinator else "a sotto that does not tell its version"
    return f"it runs {told} and this device sotto {VERSION}: {older} is older, update it"


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers; none where it has none, which is older than any."""
    found = _NUMBERS.match(version)
    return () if found is None else tuple(int(number) for number in found[0].split("."))
