import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from models.personal.neighbours import (
    MissingFaissError,
    NeighbourStore,
    require_faiss,
    stored_places,
)
from models.settings.personalisation import NeighbourSettings


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_brute_force(
    features: Tensor,
    labels: Tensor,
    logits: Tensor,
    queries: Tensor,
    *,
    count: int,
    share: float,
) -> Tensor:
    """Return the probabilities of every class, one query after the other, in float64."""
    rows = []
    for query, scores in zip(queries.double(), logits.double(), strict=True):
        squares = (features.double() - query).square().sum(1).tolist()
        nearest = sorted(range(len(squares)), key=lambda place: (squares[place], place))
        weights = {place: math.exp(-squares[place] / len(query)) for place in nearest[:count]}
        row = (1 - share) * torch.softmax(scores, 0)
        for place, weight in weights.items():
            row[labels[place]] += share * weight / sum(weights.values())
        rows.append(row)
    return torch.stack(rows)


@settings(max_examples=40, deadline=None)
@given(
    stored=st.integers(1, 40),
    queries=st.integers(1, 30),
    embed=st.integers(1, 9),
    count=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.25, 0.6, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_votes_are_those_of_a_search_by_brute_force(
    *, stored: int, queries: int, embed: int, count: int, share: float, seed: int
) -> None:
    generator = seeded(seed)
    features = torch.randn(stored, embed, generator=generator)
    asked = torch.randn(queries, embed, generator=generator)
    labels = torch.randint(5, (stored,), generator=generator)
    logits = torch.randn(queries, 5, generator=generator)
    store = NeighbourStore(features, labels, NeighbourSettings(count=count, share=share))

    mixed = store.mix(logits, asked)

    expected = by_brute_force(features, labels, logits, asked, count=count, share=share)
    assert_close(mixed.exp().double(), expected, rtol=1e-4, atol=1e-5)


def test_shares_are_those_of_the_paper() -> None:
    # d² = 0 and 2 in two dimensions: weights 1 and 1/e. The network has logits (0, 0, ln 2).
    store = NeighbourStore(
        torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([2, 0]), NeighbourSettings()
    )

    mixed = store.mix(torch.tensor([[0.0, 0.0, math.log(2)]]), torch.zeros(1, 2)).exp()

    vote = math.exp(-1) / (1 + math.exp(-1))
    expected = [0.6 * vote + 0.4 / 4, 0.4 / 4, 0.6 * (1 - vote) + 0.4 / 2]
    assert_close(mixed, torch.tensor([expected]))


def test_only_so_many_neighbours_vote() -> None:
    places = torch.arange(12.0).unsqueeze(1)
    labels = torch.tensor([0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    store = NeighbourStore(places, labels, NeighbourSettings(count=2, share=1.0))

    assert store.mix(torch.zeros(1, 2), torch.tensor([[0.4]])).exp().tolist() == [[1.0, 0.0]]


def test_equal_distances_go_to_the_earlier_examples() -> None:
    store = NeighbourStore(
        torch.zeros(5, 3), torch.tensor([3, 1, 0, 0, 0]), NeighbourSettings(count=2, share=1.0)
    )

    mixed = store.mix(torch.zeros(1, 4), torch.ones(1, 3)).exp()

    assert_close(mixed, torch.tensor([[0.0, 0.5, 0.0, 0.5]]))


def test_neighbours_so_far_that_every_weight_underflows_still_vote() -> None:
    # d² = 10^6 and 10^6 + 2001 in one dimension: weights 1 and e^-2001, as e^-1000000 is 0.
    store = NeighbourStore(
        torch.tensor([[1000.0], [-1001.0]]), torch.tensor([1, 0]), NeighbourSettings(share=1.0)
    )

    assert store.mix(torch.zeros(1, 2), torch.zeros(1, 1)).exp().tolist() == [[0.0, 1.0]]


def test_how_many_are_asked_at_once_changes_nothing() -> None:
    features = 20 + torch.randn(3000, 64, generator=seeded())
    labels = torch.randint(9, (3000,), generator=seeded(1))
    queries = 20 + torch.randn(2500, 64, generator=seeded(2))
    logits = torch.randn(2500, 9, generator=seeded(3))
    store = NeighbourStore(features, labels, NeighbourSettings())

    together = store.mix(logits, queries)

    for size in (1, 7):
        for first in (0, 100, 2400):
            part = slice(first, first + size)
            assert torch.equal(store.mix(logits[part], queries[part]), together[part])


def test_one_example_has_the_whole_vote() -> None:
    store = NeighbourStore(torch.ones(1, 2), torch.tensor([1]), NeighbourSettings(share=0.6))

    mixed = store.mix(torch.zeros(1, 2), torch.zeros(1, 2)).exp()

    assert_close(mixed, torch.tensor([[0.2, 0.8]]))


@given(st.integers(1, 300), st.floats(0.001, 1.0))
def test_capacity_draws_a_share_of_the_examples(count: int, capacity: float) -> None:
    places = stored_places(count, capacity, seeded())

    assert len(places) == math.ceil(capacity * count) >= 1
    assert places.tolist() == sorted(set(places.tolist()))
    assert 0 <= int(places[0]) <= int(places[-1]) < count


def test_draws_of_a_capacity_differ_by_seed_alone() -> None:
    one, same, other = (stored_places(100, 0.5, seeded(seed)) for seed in (1, 1, 2))

    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_store_never_leaves_its_process() -> None:
    store = NeighbourStore(torch.ones(1, 2), torch.tensor([1]), NeighbourSettings())

    with pytest.raises(TypeError, match="never leaves"):
        pickle.dumps(store)


def test_without_faiss_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingFaissError, match=r"install sotto\[neighbours\]"):
        require_faiss()
    with pytest.raises(MissingFaissError, match=r"install sotto\[neighbours\]"):
        NeighbourStore(torch.ones(1, 2), torch.tensor([1]), NeighbourSettings())


@pytest.mark.parametrize(
    ("features", "labels", "rule"),
    [
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), "stored >= 1"),
        (torch.zeros(2, 2), torch.zeros(3, dtype=torch.int64), "stored"),
        (torch.full((1, 2), math.nan), torch.zeros(1, dtype=torch.int64), "finite"),
    ],
)
def test_what_cannot_be_stored_is_refused(features: Tensor, labels: Tensor, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        NeighbourStore(features, labels, NeighbourSettings())
