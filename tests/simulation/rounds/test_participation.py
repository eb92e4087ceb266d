import pytest

from simulation.rounds.participation import SeededSource

POPULATION = [f"device-{number:04}" for number in range(1, 101)]


def test_a_round_resumed_draws_what_the_undisturbed_run_drew() -> None:
    undisturbed = SeededSource(7)
    for round_number in range(1, 6):
        undisturbed.start_round(round_number)
        fifth_round = undisturbed.choose(POPULATION, 10)
    resumed = SeededSource(7)

    resumed.start_round(5)

    assert resumed.choose(POPULATION, 10) == fifth_round


def test_rounds_and_seeds_draw_different_cohorts() -> None:
    def cohort(seed: int, round_number: int) -> tuple[str, ...]:
        source = SeededSource(seed)
        source.start_round(round_number)
        return tuple(source.choose(POPULATION, 10))

    assert len({cohort(seed, number) for seed in range(5) for number in range(1, 6)}) == 25


def test_every_client_is_drawn_about_equally_often() -> None:
    source = SeededSource(1)
    counts = dict.fromkeys(POPULATION, 0)

    for round_number in range(1, 1001):
        source.start_round(round_number)
        for name in source.choose(POPULATION, 10):
            counts[name] += 1

    # Binomial(1000, .1): mean 100, standard deviation 9.5. A client outside 5 deviations has a
    # chance of 6e-7, so any of 100 clients of 6e-5; the seed is fixed.
    assert all(52 <= count <= 148 for count in counts.values())


def test_a_cohort_larger_than_the_population_is_refused() -> None:
    with pytest.raises(ValueError, match=r"k must be in \[0, 100\], got 101"):
        SeededSource(1).choose(POPULATION, 101)
