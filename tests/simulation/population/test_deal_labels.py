"""Deals by label: every image at most once, the same shares to train and to test."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from simulation.population.deal_labels import (
    Labels,
    Share,
    by_coarse_label,
    dirichlet,
    iid,
    pathological,
)
from simulation.population.deal_users import PartitionError
from simulation.population.pachinko import pachinko

Deal = Sequence[Share]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def balanced(class_count: int, per_class: int, tests: int) -> Labels:
    """Return labels 0, 1, ..., 0, 1, ...: as many of each class."""
    return Labels(
        np.tile(np.arange(class_count), per_class),
        np.tile(np.arange(class_count), tests),
        class_count,
    )


def halved(labels: Labels) -> Labels:
    """Return coarse labels: classes 0 and 1 are 0, 2 and 3 are 1, and so on."""
    return Labels(labels.train // 2, labels.test // 2, labels.class_count // 2)


def counts(deal: Deal, labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Return clients x classes, of training and of test images."""
    train, test = (
        np.array([np.bincount(part[own], minlength=labels.class_count) for own in places])
        for part, places in (
            (labels.train, [share.train for share in deal]),
            (labels.test, [share.test for share in deal]),
        )
    )
    return train, test


def check_dealt_once(deal: Deal, labels: Labels, *, all_of_them: bool) -> None:
    for part, places in (
        (labels.train, [share.train for share in deal]),
        (labels.test, [share.test for share in deal]),
    ):
        together = np.concatenate(places)
        assert len(np.unique(together)) == len(together)
        assert not len(together) or (together.min() >= 0 and together.max() < len(part))
        if all_of_them:
            assert len(together) == len(part)


DEALS: dict[str, Callable[[Labels, torch.Generator], Deal]] = {
    "iid": lambda labels, generator: iid(labels, 5, generator=generator),
    "pathological": lambda labels, generator: pathological(
        labels, 5, classes_per_client=2, generator=generator
    ),
    "dirichlet": lambda labels, generator: dirichlet(
        labels, 5, concentration=0.5, least_images=1, generator=generator
    ),
    "coarse": lambda labels, generator: by_coarse_label(
        labels, halved(labels), 10, generator=generator
    ),
    "pachinko": lambda labels, generator: pachinko(
        labels,
        halved(labels),
        5,
        coarse_concentration=0.3,
        fine_concentration=10.0,
        generator=generator,
    ),
}


@pytest.mark.parametrize("name", DEALS)
def test_a_seed_fixes_the_deal_and_another_changes_it(name: str) -> None:
    labels = balanced(10, 30, 6)

    first, again, other = (DEALS[name](labels, seeded(seed)) for seed in (1, 1, 2))

    for one, same in zip(first, again, strict=True):
        assert one.train.tolist() == same.train.tolist()
        assert one.test.tolist() == same.test.tolist()
    assert [own.train.tolist() for own in first] != [own.train.tolist() for own in other]


@given(
    per_class=st.integers(1, 40),
    tests=st.integers(0, 10),
    clients=st.integers(1, 10),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=50, deadline=None)
def test_an_iid_deal_gives_everybody_as_many_and_loses_nothing(
    per_class: int, tests: int, clients: int, seed: int
) -> None:
    labels = balanced(10, per_class, tests)

    deal = iid(labels, clients, generator=seeded(seed))

    check_dealt_once(deal, labels, all_of_them=True)
    for sizes in ([len(own.train) for own in deal], [len(own.test) for own in deal]):
        assert max(sizes) - min(sizes) <= 1


@given(
    clients_and_classes=st.sampled_from([(1, 10), (5, 2), (20, 2), (10, 3), (4, 5), (10, 7)]),
    per_class=st.integers(20, 60),
    tests=st.integers(0, 30),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_each_client_holds_its_classes_and_each_class_its_clients(
    clients_and_classes: tuple[int, int], per_class: int, tests: int, seed: int
) -> None:
    clients, each = clients_and_classes
    labels = balanced(10, per_class, tests)

    deal = pathological(labels, clients, classes_per_client=each, generator=seeded(seed))

    check_dealt_once(deal, labels, all_of_them=False)
    train, test = counts(deal, labels)
    holders = clients * each // 10
    # A share is at least .4 of .6 of an equal one: 20 images and at most 7 holders leave one.
    assert ((train > 0).sum(axis=1) == each).all()
    assert ((train > 0).sum(axis=0) == holders).all()
    # Rounding down loses less than one image a share.
    for part, size in ((train, per_class), (test, tests)):
        assert (part.sum(axis=0) > size - holders).all() or not size
        assert (part.sum(axis=0) <= size).all()
    # The same shares to train and to test, up to that rounding.
    if tests:
        assert (np.abs(train / per_class - test / tests) < 1 / per_class + 1 / tests).all()
    # U(0.4, 0.6): no share is more than 1.5 times another's, up to rounding.
    for held in train.T:
        own = held[held > 0]
        assert own.max() <= 1.5 * (own.min() + 1)


def test_shares_that_do_not_come_out_even_are_refused() -> None:
    labels = balanced(10, 20, 5)

    with pytest.raises(PartitionError, match=r"a multiple of 10 classes, .* got 2 x 7"):
        pathological(labels, 7, classes_per_client=2, generator=seeded(1))
    with pytest.raises(PartitionError, match="at most that, got 20 x 5"):
        pathological(labels, 5, classes_per_client=20, generator=seeded(1))


def test_the_last_client_of_an_uneven_deal_still_gets_different_classes() -> None:
    # 3 classes each of 10: without the rule, one class in ten deals comes twice.
    labels = balanced(10, 50, 10)
    for seed in range(30):
        train, _ = counts(
            pathological(labels, 10, classes_per_client=3, generator=seeded(seed)), labels
        )

        assert ((train > 0).sum(axis=1) == 3).all()


@given(
    concentration=st.sampled_from([0.1, 0.3, 1.0, 100.0]),
    clients=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_a_dirichlet_deal_loses_nothing_and_stops_at_the_equal_share(
    concentration: float, clients: int, seed: int
) -> None:
    labels = balanced(10, 200, 40)

    deal = dirichlet(
        labels, clients, concentration=concentration, least_images=10, generator=seeded(seed)
    )

    check_dealt_once(deal, labels, all_of_them=True)
    train, test = counts(deal, labels)
    assert train.sum(axis=1).min() >= 10
    assert test.sum(axis=1).min() >= 10
    # A client below N/n = 2,000/n can get at most one whole class of 200 on top.
    assert train.sum(axis=1).max() < 2000 / clients + 200
    # The running total is rounded: each share is off by less than one image.
    assert (np.abs(train / 200 - test / 40) <= 1 / 200 + 1 / 40).all()


def test_a_client_at_its_equal_share_gets_nothing_more() -> None:
    # Two clients and ten classes of 20: who holds 100 before a class gets none of it, so whoever
    # fills up within class 5 ends there.
    labels = balanced(10, 20, 20)
    for seed in range(20):
        train, _ = counts(
            dirichlet(labels, 2, concentration=0.05, least_images=1, generator=seeded(seed)), labels
        )
        for own in train:
            before = np.concatenate([[0], np.cumsum(own)[:-1]])
            assert (own[before >= 100] == 0).all()


def test_small_alpha_separates_classes_and_large_alpha_mixes_them() -> None:
    labels = balanced(10, 200, 100)

    def largest_share(concentration: float) -> float:
        deal = dirichlet(labels, 5, concentration=concentration, generator=seeded(3))
        train, _ = counts(deal, labels)
        return float((train.max(axis=0) / 200).mean())

    # Equal shares are 0.2 each; Dir(1000) keeps them within some per cent.
    assert largest_share(1000.0) < 0.25
    assert largest_share(0.1) > 0.6


def test_a_deal_that_cannot_be_had_says_what_to_change() -> None:
    with pytest.raises(
        PartitionError, match=r"lower data\.client_count or data\.least_images, or raise"
    ):
        dirichlet(balanced(2, 10, 5), 5, concentration=0.1, generator=seeded(1))
    with pytest.raises(PartitionError, match="must be >= 21, one for each client, got 20"):
        iid(balanced(2, 10, 5), 21, generator=seeded(1))
    with pytest.raises(ValueError, match="concentration must be > 0 and finite, got nan"):
        dirichlet(balanced(2, 10, 5), 2, concentration=float("nan"), generator=seeded(1))


def test_a_coarse_class_belongs_to_its_own_clients() -> None:
    # 4 classes in 2 coarse ones, 6 clients: three for each, a third of each fine class.
    labels = balanced(4, 30, 7)

    deal = by_coarse_label(labels, halved(labels), 6, generator=seeded(1))

    check_dealt_once(deal, labels, all_of_them=True)
    train, test = counts(deal, labels)
    assert train.tolist() == [[10, 10, 0, 0]] * 3 + [[0, 0, 10, 10]] * 3
    assert test[:3].tolist() == [[3, 3, 0, 0], [2, 2, 0, 0], [2, 2, 0, 0]]
    assert test[3:].tolist() == [[0, 0, 3, 3], [0, 0, 2, 2], [0, 0, 2, 2]]
    with pytest.raises(PartitionError, match="a multiple of 2 coarse classes, got 5"):
        by_coarse_label(labels, halved(labels), 5, generator=seeded(1))


@given(clients=st.integers(1, 12), tests=st.integers(0, 9), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_pachinko_gives_everybody_as_many_images_of_both_parts(
    clients: int, tests: int, seed: int
) -> None:
    labels = balanced(6, 20, tests)

    deal = pachinko(
        labels,
        halved(labels),
        clients,
        coarse_concentration=0.3,
        fine_concentration=10.0,
        generator=seeded(seed),
    )

    check_dealt_once(deal, labels, all_of_them=False)
    size = (120 + 6 * tests) // clients
    assert [len(own.train) + len(own.test) for own in deal] == [size] * clients


def test_pachinko_separates_coarse_classes_more_than_fine_ones() -> None:
    # 20 coarse classes of 5 fine ones, as CIFAR-100 has, with 60 images of each fine class.
    labels = balanced(100, 50, 10)
    coarse = Labels(labels.train // 5, labels.test // 5, 20)

    deal = pachinko(
        labels,
        coarse,
        20,
        coarse_concentration=0.1,
        fine_concentration=10.0,
        generator=seeded(12345),
    )

    train, test = counts(deal, labels)
    first = (train + test)[:5]
    by_coarse = first.reshape(5, 20, 5).sum(axis=2)
    # Dir(0.1) over 20: the first clients find most of their 300 images in a few coarse classes.
    assert (np.sort(by_coarse, axis=1)[:, -5:].sum(axis=1) > 200).all()
    # Within the largest coarse class, Dir(10) over 5 leaves no fine class out.
    largest = first.reshape(5, 20, 5)[np.arange(5), by_coarse.argmax(axis=1)]
    assert (largest > 0).all()
    # Which part an image is of is left to chance: one in six tests, over all clients exactly.
    assert_allclose(test.sum() / (train + test).sum(), 1 / 6, atol=0.01)


def test_a_class_that_runs_out_is_replaced_by_others() -> None:
    # One coarse class has 2 images, the other 18: whoever draws the small one soon gets the rest.
    train = np.array([0] * 2 + [1] * 18)
    labels = Labels(train, np.empty(0, np.int64), 2)

    (deal,) = pachinko(
        labels, labels, 1, coarse_concentration=1.0, fine_concentration=1.0, generator=seeded(1)
    )

    assert sorted(deal.train.tolist()) == list(range(20))


@pytest.mark.parametrize(
    ("clients", "alpha", "told"), [(0, 1.0, "in"), (21, 1.0, "in"), (2, 0.0, "coarse_c")]
)
def test_a_pachinko_deal_that_cannot_be_had_is_refused(
    clients: int, alpha: float, told: str
) -> None:
    labels = Labels(np.zeros(20, np.int64), np.empty(0, np.int64), 1)

    with pytest.raises(ValueError, match=told):
        pachinko(
            labels,
            labels,
            clients,
            coarse_concentration=alpha,
            fine_concentration=1.0,
            generator=seeded(1),
        )
