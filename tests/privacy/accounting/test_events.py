"""What was released, in one canonical form, with every value checked by its name."""

import math

import pytest

from privacy.accounting.checked_values import (
    check_count,
    check_delta,
    check_epsilon,
    check_sampling_rate,
)
from privacy.accounting.events import (
    BufferedRelease,
    EvaluationRelease,
    EventError,
    GaussianRelease,
    LocalRelease,
    MaskedAttempt,
    MaskedRelease,
    PrivacyEvent,
    SecretCoinFlips,
    TreeRelease,
    UnprotectedRelease,
    canonical_bytes,
    read_event,
)

COINS = SecretCoinFlips(sampling_rate=0.01, population_size=1000, slot_count=40)

EVENTS: list[PrivacyEvent] = [
    GaussianRelease(noise_multiplier=1.1, adjacency="zero-out", sampling=COINS),
    TreeRelease(
        noise_multiplier=7.0,
        adjacency="zero-out",
        min_separation=313,
        max_participation=6,
        tree_number=0,
    ),
    BufferedRelease(
        noise_multiplier=4.05,
        adjacency="zero-out",
        min_separation=313,
        max_participation=6,
        buffer_decays=(0.994940722, 0.8),
        buffer_scales=(0.134896143, 1e-9),
    ),
    LocalRelease(noise_multiplier=2.0),
    MaskedAttempt(noise_multiplier=1.0, adjacency="zero-out", honest_contributors=70),
    MaskedRelease(noise_multiplier=1.0, adjacency="replace-one", honest_contributors=1),
    EvaluationRelease(noise_multiplier=9.0, adjacency="replace-one", sampling=None),
    UnprotectedRelease(mode="paper"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_from_its_bytes(event: PrivacyEvent) -> None:
    assert read_event(canonical_bytes(event)) == event


def test_canonical_bytes_are_sorted_and_numbers_have_one_spelling() -> None:
    assert canonical_bytes(LocalRelease(noise_multiplier=2)) == (
        b'{"event":"local","noise_multiplier":2.0}'
    )
    measured = EvaluationRelease(noise_multiplier=9.0, adjacency="zero-out", sampling=None)
    assert canonical_bytes(measured) == (
        b'{"adjacency":"zero-out","event":"evaluation","noise_multiplier":9.0,"sampling":null}'
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"noise_multiplier":2.0,"event":"local"}', "canonical"),
        (b'{"event": "local","noise_multiplier":2.0}', "canonical"),
        (b'{"event":"local","noise_multiplier":-2.0}', "noise_multiplier must be > 0"),
        (b'{"event":"local"}', "noise_multiplier"),
        (b'{"event":"local","noise_multiplier":2.0,"z":1}', "unknown field"),
        (
            b'{"adjacency":"zero-out","buffer_decays":[1.5],"buffer_scales":[0.5],"event":"blt",'
            b'"max_participation":1,"min_separation":1,"noise_multiplier":1.0}',
            r"buffer_decays must lie in \(0, 1\), got 1.5",
        ),
        (b'{"event":"laplace"}', "laplace"),
        (b"\xff", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_bytes_that_are_no_canonical_event_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(EventError, match=words):
        read_event(data)


def test_sampling_does_not_amplify_replace_one() -> None:
    with pytest.raises(ValueError, match="sampling must be None with adjacency replace-one"):
        GaussianRelease(noise_multiplier=1.0, adjacency="replace-one", sampling=COINS)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, None])
def test_a_noise_multiplier_that_is_none_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match="noise_multiplier must be"):
        LocalRelease(noise_multiplier=value)
    with pytest.raises(ValueError, match=r"^epsilon must be"):
        check_epsilon(value)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.1, math.nan, None])
def test_a_rate_outside_its_range_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match="sampling_rate must be"):
        check_sampling_rate(value)


@pytest.mark.parametrize("value", [0.0, -1e-5, 1.0, math.nan, None])
def test_a_delta_outside_its_range_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match=r"^delta must be"):
        check_delta(value)


def test_delta_is_at_most_one_over_the_population() -> None:
    assert check_delta(1e-3, population_size=1000) == 1e-3
    with pytest.raises(ValueError, match=r"delta must be at most 1 / population = 0.001 for 1000"):
        check_delta(1.1e-3, population_size=1000)


@pytest.mark.parametrize("value", [None, 0, 2.0, True])
def test_a_count_is_a_whole_number_from_one(value: int) -> None:
    with pytest.raises(ValueError, match="rounds must be"):
        check_count(value, "rounds")
