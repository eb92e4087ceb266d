import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from models.personal.gaussian_process_tree import (
    GaussianProcessTree,
    class_tree,
    held_out_half,
    predictive_loss,
    two_means,
)
from models.settings.gaussian_process import GaussianProcessSettings

SETTINGS = GaussianProcessSettings(chain_count=6, evaluation_chain_count=8)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def clusters(labels: Tensor, seed: int = 0) -> Tensor:
    """Return features of 6 numbers that lie around one of 9 centres each, by their label."""
    centres = 3 * torch.randn(9, 6, generator=seeded(99))
    return centres[labels] + 0.3 * torch.randn(len(labels), 6, generator=seeded(seed))


def test_classes_that_lie_together_stay_together() -> None:
    # On a line at 0, 1, 10, 11 and 30: 30 stands alone (squares of 101 about 5.5, against 254 with
    # 10 and 11 beside it), then the two pairs part.
    places = torch.tensor([0.0, 30.0, 1.0, 11.0, 10.0])
    labels = torch.tensor([5, 6, 7, 8, 9])

    forks = class_tree(places.unsqueeze(1), labels)

    assert [(fork.left, fork.right) for fork in forks] == [
        ((5, 7, 8, 9), (6,)),
        ((5, 7), (8, 9)),
        ((5,), (7,)),
        ((8,), (9,)),
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(1, 3), st.integers(0, 2**32))
def test_no_split_has_smaller_squares(count: int, embed: int, seed: int) -> None:
    points = torch.randn(count, embed, dtype=torch.float64, generator=seeded(seed))

    def squares(is_left: Tensor) -> float:
        sides = [points[is_left], points[~is_left]]
        return sum(float((side - side.mean(0)).square().sum()) for side in sides)

    found = two_means(points)

    others = [
        torch.tensor([True, *rest])
        for rest in itertools.product([True, False], repeat=count - 1)
        if not all(rest)
    ]
    assert bool(found[0])
    # Lloyd ends in a local minimum; from every pair of few points it is nearly always the global.
    assert squares(found) <= 1.35 * min(squares(other) for other in others) + 1e-12


def test_points_that_are_one_are_split_all_the_same() -> None:
    assert two_means(torch.ones(4, 3)).tolist() == [True, False, False, False]


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 99), min_size=1, max_size=14), st.integers(0, 2**32))
def test_a_tree_has_a_path_to_every_class_and_ends_there(classes: set[int], seed: int) -> None:
    labels = torch.tensor(sorted(classes)).repeat(3)
    features = torch.randn(len(labels), 4, generator=seeded(seed))

    forks = class_tree(features, labels)

    reached = {tuple(sorted(classes))}
    for fork in forks:
        reached.remove(tuple(sorted(fork.left + fork.right)))
        reached |= {fork.left, fork.right}
    assert reached == {(number,) for number in classes}


def test_more_classes_than_starts_need_are_split() -> None:
    # 12 classes have 66 pairs of starts: 50 of them are drawn, the same ones every time.
    labels = torch.arange(12)
    features = torch.cat([torch.arange(6.0), 100 + torch.arange(6.0)]).unsqueeze(1)

    forks = class_tree(features, labels)

    assert forks[0].left == (0, 1, 2, 3, 4, 5)
    assert len(forks) == 11
    assert class_tree(features, labels) == forks


def test_half_of_each_class_is_held_out() -> None:
    labels = torch.tensor([0, 1, 0, 0, 2, 1, 0, 0])

    is_held_out = held_out_half(labels, seeded())

    # 5, 2 and 1 examples: 2, 1 and none.
    assert [int(is_held_out[labels == number].sum()) for number in (0, 1, 2)] == [2, 1, 0]
    draws = {tuple(held_out_half(labels, seeded(seed)).tolist()) for seed in range(40)}
    assert len(draws) > 10


def test_known_clusters_are_told_apart() -> None:
    labels = torch.arange(60) % 5 + 2
    tree = GaussianProcessTree(clusters(labels), labels, SETTINGS, seeded())

    probabilities = tree.class_probabilities(clusters(labels, seed=1), 9)

    assert_close(probabilities.sum(1), torch.ones(60, dtype=torch.float64))
    assert bool((probabilities[:, [0, 1, 7, 8]] == 0).all())
    assert int((probabilities.argmax(1) == labels).sum()) >= 57


def test_a_prediction_depends_on_its_own_query_alone() -> None:
    labels = torch.arange(20) % 3
    tree = GaussianProcessTree(clusters(labels), labels, SETTINGS, seeded())
    queries = clusters(labels, seed=1)

    together = tree.class_probabilities(queries, 3)

    apart = torch.cat([tree.class_probabilities(query, 3) for query in torch.split(queries, 1)])
    assert_close(together, apart, rtol=1e-9, atol=1e-12)


def test_a_client_with_one_class_is_sure_of_it_and_learns_nothing() -> None:
    labels = torch.full((4,), 3)
    features = clusters(labels).requires_grad_()

    loss = predictive_loss(features, labels, SETTINGS, seeded())
    (gradient,) = torch.autograd.grad(loss, features)
    tree = GaussianProcessTree(features, labels, SETTINGS, seeded())

    assert float(loss.detach()) == 0
    assert int(gradient.count_nonzero()) == 0
    assert tree.class_probabilities(features[:1], 5).tolist() == [[0, 0, 0, 1, 0]]


def test_one_example_of_each_class_predicts_but_does_not_train() -> None:
    labels = torch.tensor([1, 4])
    features = clusters(labels).requires_grad_()

    loss = predictive_loss(features, labels, SETTINGS, seeded())
    probabilities = GaussianProcessTree(features, labels, SETTINGS, seeded()).class_probabilities(
        features, 5
    )

    assert float(loss.detach()) == 0
    assert float(probabilities[0, 1]) > float(probabilities[1, 1])
    assert float(probabilities[1, 4]) > float(probabilities[0, 4])


@pytest.mark.slow
def test_following_the_loss_pulls_classes_apart() -> None:
    labels = torch.arange(24) % 3
    features = torch.randn(24, 4, generator=seeded(3)).requires_grad_()
    generator = seeded(4)

    def loss() -> Tensor:
        return torch.stack(
            [predictive_loss(features, labels, SETTINGS, generator) for _ in range(4)]
        ).mean()

    before = float(loss().detach())
    for _ in range(12):
        (gradient,) = torch.autograd.grad(loss(), features)
        with torch.no_grad():
            features -= 5 * gradient

    # Two forks that know nothing cost about 2 ln 2 = 1.39 nats.
    assert before > 1.0
    assert float(loss().detach()) < before / 2


def test_loss_is_the_mean_log_probability_of_the_held_out_half() -> None:
    # Two far clusters and ever more jitter: knowing nothing, f has variance 8 and mean 0, and the
    # left side costs -E[log σ(f)], the right one -log(1 - e^{E[log σ(f)]}).
    deaf = GaussianProcessSettings(jitter=1e12, chain_count=3)
    labels = torch.arange(8) % 2
    grid = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    density = torch.exp(-grid.square() / 2) / torch.exp(-grid.square() / 2).sum()
    bound = float((torch.nn.functional.logsigmoid(math.sqrt(8) * grid) * density).sum())

    loss = predictive_loss(clusters(labels), labels, deaf, seeded())

    assert float(loss) == pytest.approx(-(bound + math.log(1 - math.exp(bound))) / 2, rel=1e-3)


def test_loss_and_prediction_depend_on_the_generator_alone() -> None:
    labels = torch.arange(12) % 3
    features = clusters(labels)

    def figures(seed: int) -> tuple[float, Tensor]:
        torch.manual_seed(seed + 100)
        loss = predictive_loss(features, labels, SETTINGS, seeded(seed // 2))
        tree = GaussianProcessTree(features, labels, SETTINGS, seeded(seed // 2))
        return float(loss), tree.class_probabilities(features, 3)

    (first, one), (second, same), (third, other) = figures(0), figures(1), figures(2)

    assert first == second != third
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_tree_never_leaves_its_process() -> None:
    labels = torch.arange(4)
    tree = GaussianProcessTree(clusters(labels), labels, SETTINGS, seeded())

    with pytest.raises(TypeError, match="never leaves"):
        pickle.dumps(tree)


def test_features_that_are_not_finite_are_refused() -> None:
    features = torch.tensor([[1.0], [math.inf]])

    with pytest.raises(ValueError, match="finite"):
        predictive_loss(features, torch.tensor([0, 1]), SETTINGS, seeded())


def test_a_client_without_examples_is_refused() -> None:
    with pytest.raises(ValueError, match="examples >= 1"):
        GaussianProcessTree(
            torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), SETTINGS, seeded()
        )
