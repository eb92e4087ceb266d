"""Deals of text to clients: nothing twice, sizes as stated, the same for the same seed."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simulation.population.deal_users import (
    Partition,
    PartitionError,
    by_user,
    dirichlet_shards,
    group_users,
    iid_shards,
    pooled,
)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(count: int) -> list[list[str]]:
    """Return sentences that are all different."""
    return [[f"word{number}"] for number in range(count)]


def dealt(partition: Partition) -> Counter[str]:
    return Counter(words[0] for client in partition.clients.values() for words in client)


deals = st.integers(1, 20).flatmap(lambda n: st.tuples(st.integers(n, 120), st.just(n)))
user_sizes = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 9), min_size=1)


@given(deals, st.integers(0, 2**32))
def test_iid_shards_are_equal_and_hold_no_sentence_twice(deal: tuple[int, int], seed: int) -> None:
    size, client_count = deal

    partition = iid_shards(numbered(size), client_count, generator=seeded(seed))

    assert {len(client) for client in partition.clients.values()} == {size // client_count}
    assert len(partition.clients) == client_count
    assert partition.dropped_sentences == size % client_count
    assert set(dealt(partition).values()) == {1}


@given(deals, st.floats(0.01, 100), st.integers(0, 2**32))
def test_dirichlet_shards_hold_every_sentence_once_and_nobody_goes_without(
    deal: tuple[int, int], concentration: float, seed: int
) -> None:
    size, client_count = deal

    partition = dirichlet_shards(
        numbered(size), client_count, concentration=concentration, generator=seeded(seed)
    )

    assert len(partition.clients) == client_count
    assert min(len(client) for client in partition.clients.values()) >= 1
    assert dealt(partition) == Counter(f"word{number}" for number in range(size))
    assert partition.dropped_sentences == 0


@given(user_sizes, st.data())
def test_groups_hold_every_user_whole(sizes: dict[str, int], data: st.DataObject) -> None:
    users = {user: [[user]] * size for user, size in sizes.items()}
    client_count = data.draw(st.integers(1, len(users)))

    partition = group_users(users, client_count)

    assert len(partition.clients) == client_count
    assert dealt(partition) == Counter(sizes)
    for user in users:
        assert sum([user] in client for client in partition.clients.values()) == 1


@given(deals, st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_deal(deal: tuple[int, int], seed: int) -> None:
    size, client_count = deal

    def deal_again() -> list[Partition]:
        sentences = numbered(size)
        return [
            iid_shards(sentences, client_count, generator=seeded(seed)),
            dirichlet_shards(sentences, client_count, concentration=0.5, generator=seeded(seed)),
        ]

    assert deal_again() == deal_again()


def test_another_seed_gives_another_deal() -> None:
    # Two shuffles of 100 agree by chance with probability 1/100!.
    one, other = (iid_shards(numbered(100), 2, generator=seeded(seed)) for seed in (1, 2))

    assert one != other


def test_shards_mix_the_text_of_different_places() -> None:
    # A shard of 500 out of 1,000 misses the first half with probability below 2^-500.
    partition = iid_shards(numbered(1000), 2, generator=seeded(3))

    firsts = {f"word{number}" for number in range(500)}
    for client in partition.clients.values():
        share = sum(words[0] in firsts for words in client) / 500
        # Hypergeometric, standard deviation 0.016: further off has probability below 1e-9.
        assert abs(share - 0.5) < 0.1


@pytest.mark.slow
def test_penn_treebank_s_deal_drops_68_sentences() -> None:
    # [FedAtt]: 42,068 sentences, 100 clients, 420 each.
    partition = iid_shards(numbered(42_068), 100, generator=seeded(0))

    assert {len(client) for client in partition.clients.values()} == {420}
    assert partition.dropped_sentences == 68


def test_small_concentrations_are_uneven_and_large_ones_even() -> None:
    def largest(concentration: float) -> int:
        partition = dirichlet_shards(
            numbered(10_000), 10, concentration=concentration, generator=seeded(5)
        )
        return max(len(client) for client in partition.clients.values())

    # With α = 1000 a share has standard deviation 0.003, so 1,000 + 8 deviations = 1,240.
    assert largest(1000.0) < 1240
    assert largest(0.05) > 3000


def test_users_with_little_text_and_quiet_users_are_left_out() -> None:
    users = {"ann": [["a", "b"]], "bob": [["c"]] * 3, "eve": [["d"] * 9] * 2, "kim": [["e"]] * 2}

    partition = by_user(users, least_sentences=2, client_count=2)

    assert partition.clients == {"bob": users["bob"], "eve": users["eve"]}
    assert partition.dropped_sentences == 3


def test_the_largest_users_are_dealt_first_to_the_emptiest_client() -> None:
    # Words: 6, 5, 4, 3 -> {6, 3} and {5, 4}.
    users = {name: [["w"]] * size for name, size in (("a", 3), ("b", 4), ("c", 5), ("d", 6))}

    partition = group_users(users, 2)

    assert [len(client) for client in partition.clients.values()] == [9, 9]


def test_pooling_does_not_depend_on_the_order_of_users() -> None:
    assert pooled({"b": [["2"]], "a": [["1"]]}) == [["1"], ["2"]]


def test_too_little_text_and_senseless_settings_are_refused() -> None:
    with pytest.raises(
        PartitionError, match=r"sentences must be >= 3.* got 2; lower data\.client_count"
    ):
        iid_shards(numbered(2), 3, generator=seeded(0))
    with pytest.raises(PartitionError, match="users must be >= 2"):
        group_users({"ann": numbered(9)}, 2)
    with pytest.raises(PartitionError, match="users with 5 sentences must be >= 1"):
        by_user({"ann": numbered(4)}, least_sentences=5)
    with pytest.raises(ValueError, match="client_count must be >= 1, got 0"):
        iid_shards(numbered(2), 0, generator=seeded(0))
    for concentration in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="concentration must be > 0"):
            dirichlet_shards(numbered(2), 1, concentration=concentration, generator=seeded(0))
