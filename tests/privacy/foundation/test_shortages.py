"""Shortages that pass, and the room that a process may have."""

import resource
import sys

import pytest

from privacy.foundation.shortages import raise_descriptor_limit


@pytest.mark.parametrize(("hard", "told"), [(4096, 4096), (resource.RLIM_INFINITY, sys.maxsize)])
def test_the_soft_limit_of_open_files_becomes_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, hard: int, told: int
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))

    assert raise_descriptor_limit() == told
    assert asked == [(hard, hard)]
