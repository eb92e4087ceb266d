"""A bound on the chance that secret coin flips draw more people than a round has slots.

The number drawn is binomial. A draw above the fixed slot count aborts the round before anybody is
asked; that abort depends on who is enrolled, so its probability over the whole run is added to
delta, and is kept at most a tenth of it.
"""

from privacy.accounting.checked_values import check_count, check_delta, check_sampling_rate

LARGEST_SHARE_OF_DELTA = 0.1


def overflow_probability(population_size: int, sampling_rate: float, slot_count: int) -> float:
    """Return P[Bin(N, q) > M] for one draw among N enrolled people for M slots."""
    from scipy.stats import binom

    check_count(population_size, "population_size")
    check_count(slot_count, "slot_count")
    rate = check_sampling_rate(sampling_rate)
    return float(binom.sf(slot_count, population_size, rate))


def slot_count_for(population_size: int, sampling_rate: float, *, rounds: int, delta: float) -> int:
    """Return the least M with T * P[Bin(N, q) > M] <= δ / 10, T being the draws of the whole run.

    Raises:
        ValueError: If a value is out of its range, or delta is above 1 / population.
    """
    check_count(rounds, "rounds")
    limit = check_delta(delta, population_size=population_size) * LARGEST_SHARE_OF_DELTA / rounds
    low, high = 1, population_size
    while low < high:
        middle = (low + high) // 2
        if overflow_probability(population_size, sampling_rate, middle) <= limit:
            high = middle
        else:
            low = middle + 1
    return low
