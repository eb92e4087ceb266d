import msgspec
import pytest

from server.config.rounds import RoundSettings


def settings(**changes: object) -> RoundSettings:
    values = {"cap": 3, "cohort_size": 4, "quorum": 2, "deadline_s": 10.0} | changes
    return msgspec.convert(
        {name: value for name, value in values.items() if value is not None}, RoundSettings
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"participation_rate": 0.1}, "give either cohort_size or participation_rate"),
        ({"cohort_size": None, "participation_rate": 0.0}, r"must be in \(0, 1\], got 0.0"),
        ({"cohort_size": None, "participation_rate": 1.5}, r"must be in \(0, 1\], got 1.5"),
        (
            {"cohort_size": None, "participation_rate": 0.5, "selection": "first-come"},
            "give cohort_size for first-come",
        ),
        ({"over_selection": 1.3}, "raise cohort_size or lower quorum"),
        ({"over_selection": 0.9, "selection": "first-come"}, "over_selection must be >= 1"),
        ({"population_size": 9}, "belongs to selection"),
        ({"selection": "sampled"}, "needs participation_rate"),
        (
            {"selection": "sampled", "participation_rate": 0.5, "close_early": False},
            "population_size",
        ),
        (
            {"selection": "sampled", "participation_rate": 0.5, "population_size": 9},
            "close_early must be false",
        ),
        (
            {
                "selection": "sampled",
                "participation_rate": 0.5,
                "population_size": 9,
                "close_early": False,
                "over_selection": 1.3,
            },
            'over_selection must be 1 when selection = "sampled"',
        ),
        (
            {
                "selection": "sampled",
                "participation_rate": 0.5,
                "population_size": 0,
                "close_early": False,
            },
            "population_size must be >= 1, got 0",
        ),
        ({"retry_limit": -1}, "retry_limit must be >= 0, got -1"),
        ({"deadline_s": float("inf")}, "deadline_s must be > 0 and finite, got inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        settings(**changes)


@pytest.mark.parametrize(
    ("population_size", "cohort_size"), [(1, 1), (10, 1), (24, 2), (1000, 100)]
)
def test_the_participation_rate_gives_at_least_one_client(
    population_size: int, cohort_size: int
) -> None:
    rounds = settings(cohort_size=None, participation_rate=0.1)

    assert rounds.cohort_size_of(population_size) == cohort_size


@pytest.mark.parametrize(
    ("over_selection", "lease_count"), [(1.0, 10), (1.1, 11), (1.25, 13), (2.0, 20)]
)
def test_over_selection_rounds_up_what_is_not_whole(
    over_selection: float, lease_count: int
) -> None:
    rounds = settings(selection="first-come", over_selection=over_selection)

    assert rounds.lease_count_of(10) == lease_count
