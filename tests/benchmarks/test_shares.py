"""Commands that share a table's runs run each of them once."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tables.arguments import Share


@given(runs=st.lists(st.integers(), unique=True), of=st.integers(1, 9))
def test_shares_are_all_runs_and_none_twice(runs: list[int], of: int) -> None:
    shares = [Share.read(f"{part}/{of}").taken(runs) for part in range(1, of + 1)]

    assert sorted(run for share in shares for run in share) == sorted(runs)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("text", ["", "2", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1.0/2"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="I/N with I from 1 to N"):
        Share.read(text)
