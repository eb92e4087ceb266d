import math

import msgspec
import pytest

from server.config.buffered import BufferedSettings, StalenessError, staleness_of
from server.config.rounds import RoundSettings

ROUNDS = {
    "cap": 3,
    "selection": "first-come",
    "cohort_size": 2,
    "quorum": 1,
    "deadline_s": 10.0,
    "buffered": {"concurrency": 4},
}


def test_an_update_is_worth_the_less_the_older_it_is() -> None:
    settings = BufferedSettings(concurrency=1, max_staleness=8)

    # [FedBuff]: 1/√(1 + τ).
    assert [settings.worth(staleness) for staleness in (0, 3, 8)] == [1.0, 0.5, 1 / 3]


def test_the_exponent_decides_how_fast() -> None:
    # (1 + 3)^-2 = 1/16; an exponent of 0 counts all alike.
    assert BufferedSettings(concurrency=1, staleness_exponent=2.0).worth(3) == 1 / 16
    assert BufferedSettings(concurrency=1, staleness_exponent=0.0).worth(9) == 1.0


def test_what_is_older_than_the_bound_or_from_the_future_is_worth_nothing() -> None:
    settings = BufferedSettings(concurrency=1, max_staleness=2)

    with pytest.raises(StalenessError, match=r"staleness must be <= .*max_staleness 2, got 3"):
        settings.worth(3)
    with pytest.raises(StalenessError, match="staleness must be >= 0, got -1"):
        settings.worth(-1)


def test_staleness_counts_the_releases_since_an_update_was_begun() -> None:
    assert staleness_of(3, 3) == 0
    assert staleness_of(3, 7) == 4
    with pytest.raises(StalenessError, match="starts from a release that is still to be made"):
        staleness_of(8, 7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"concurrency": 0}, "concurrency must be >= 1, got 0"),
        ({"concurrency": 1, "max_staleness": -1}, "max_staleness must be >= 0, got -1"),
        ({"concurrency": 1, "staleness_exponent": -0.5}, "staleness_exponent must be >= 0"),
        ({"concurrency": 1, "staleness_exponent": math.nan}, "staleness_exponent must be >= 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(values, BufferedSettings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selection": "drawn"}, "selection must be \"first-come\" with buffered, got 'drawn'"),
        ({"over_selection": 1.5}, r"over_selection must be 1\.0 with buffered, got 1\.5"),
        ({"close_early": False}, "close_early must be true with buffered, got False"),
    ],
)
def test_settings_of_synchronous_rounds_are_refused_beside_it(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(ROUNDS | changes, RoundSettings)
