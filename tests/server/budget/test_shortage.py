import pytest

from server.budget.shortage import shortage_of
from tests.server.config.test_guarantee_rules import CENTRAL, TREE, config

NEVER_RESTS = TREE.replace("min_separation = 3", "min_separation = 1")
LACK = "rounds.cohort_size must be <= the {} clients that may take part, got 5"
ADVICE = "; lower it and rounds.quorum, or enrol more devices"


def test_with_enough_devices_there_is_none() -> None:
    assert shortage_of(config(TREE), eligible=5, enrolled=9) is None


@pytest.mark.parametrize("privacy", [CENTRAL, TREE])
def test_too_few_enrolled_devices_can_be_mended_by_more(privacy: str) -> None:
    told = shortage_of(config(privacy), eligible=4, enrolled=4)

    assert told == LACK.format(4) + ADVICE


@pytest.mark.parametrize(
    ("privacy", "barred"),
    [
        (
            TREE,
            "has taken part 2 times (privacy.max_participation) or in one of the last 2 rounds "
            "(privacy.min_separation)",
        ),
        (NEVER_RESTS, "has taken part 2 times (privacy.max_participation)"),
    ],
)
def test_devices_that_may_not_take_part_wait_for_rounds_and_not_for_days(
    privacy: str, barred: str
) -> None:
    some = shortage_of(config(privacy), eligible=1, enrolled=7)
    none = shortage_of(config(privacy), eligible=0, enrolled=7)

    assert some == (
        f"{LACK.format(1)}{ADVICE}. Each of the 6 other enrolled devices {barred}; none of them "
        "becomes eligible before another round is released"
    )
    assert none == (
        f"each of the 7 enrolled devices {barred}; none of them will ever be eligible again unless "
        "new devices enrol"
    )
