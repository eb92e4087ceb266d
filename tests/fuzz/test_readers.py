"""No bytes from outside make a reader do anything but read or refuse, in little time and memory.

`make fuzz` runs the same targets for longer, guided by coverage.
"""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.hostile import hostile
from tests.fuzz.registry import TARGETS
from tests.fuzz.target import Prepared, Target

LONGEST_S = 1.0
MOST_BYTES = 200 << 20

EDITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 16),
        st.one_of(
            st.binary(max_size=8),
            st.sampled_from(
                [b"\xff", b"\0", b"-", b"9" * 40, b"null", b"[[", b"}", b'"', b"\xff\xff\xff\x7f"]
            ),
        ),
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module", params=TARGETS.values(), ids=list(TARGETS))
def prepared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Target, Prepared]:
    target: Target = request.param
    return target, target.prepare(tmp_path_factory.mktemp(target.name))


def test_a_reader_takes_what_it_is_for(prepared: tuple[Target, Prepared]) -> None:
    target, (read, seeds) = prepared
    try:
        read(seeds[0])
    except target.refusals as error:
        # A lease is for one device's day: that one is refused after all of it was read.
        assert target.name == "lease", error


def test_hostile_bytes_end_in_the_readers_own_error(prepared: tuple[Target, Prepared]) -> None:
    target, (read, seeds) = prepared
    inputs = [*seeds, *(one for name in target.hostile for one in hostile(name))]
    for content in inputs:
        with within_bounds():
            _taken(target, read, content)


@given(edits=EDITS, which=st.integers(0, 9))
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
def test_changed_bytes_end_in_the_readers_own_error(
    prepared: tuple[Target, Prepared], edits: list[tuple[float, int, bytes]], which: int
) -> None:
    target, (read, seeds) = prepared
    content = seeds[which % len(seeds)]
    for place, gone, put in edits:
        start = int(place * len(content))
        content = content[:start] + put + content[start + gone :]

    with within_bounds():
        _taken(target, read, content)


@contextmanager
def within_bounds() -> Iterator[None]:
    """Let no more memory be had than a reader may take, nor more of the processor's time."""
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    now = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, most))
    start = time.process_time()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))
    assert time.process_time() - start < LONGEST_S


def _taken(target: Target, read: object, content: bytes) -> None:
    assert callable(read)
    with suppress(*target.refusals):
        read(content)
