"""Images become clients, each tested on the mixture of classes that it trains on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from edge_client.datasets.image_set import CoarseLabels, ImageSet
from edge_client.datasets.registry import load_images
from models.tasks.image_classification import LabelledImages
from server.config.federation import ConfigError
from simulation.config.simulation import SimulationConfig, config_from
from simulation.population.dealing import build_population
from simulation.population.partition_record import (
    PARTITION_FILE,
    PartitionChangedError,
    PartitionRecord,
    keep_partition,
)
from simulation.population.population import Population, PopulationError

TABLES: dict[str, Any] = {
    "seed": 1,
    "task": "image_classification",
    "data": {
        "dataset": "digits",
        "partition": "pathological",
        "client_count": 10,
        "classes_per_client": 2,
    },
    "model": {
        "family": "vit",
        "class_count": 10,
        "image_size": 8,
        "channel_count": 1,
        "pixel_mean": [0.3],
        "pixel_std": [0.4],
        "patch_size": 4,
        "model_size": 8,
        "head_count": 2,
        "head_size": 4,
        "layer_count": 1,
        "feedforward_size": 8,
    },
    "training": {"learning_rate": 0.1, "batch_size": 16},
    "privacy": {"mode": "none"},
    "aggregation": {"rule": "mean"},
    "rounds": {"cap": 2, "cohort_size": 3, "quorum": 2, "deadline_s": 60.0},
}


def configured(**data: object) -> SimulationConfig:
    return config_from({**TABLES, "data": {"dataset": "digits", **data}}, "test")


def images_of(train: list[int], test: list[int], coarse: bool = False) -> ImageSet:
    """Return images whose pixels tell their place, with these labels of three classes."""

    def labelled(labels: list[int]) -> LabelledImages:
        pixels = torch.arange(len(labels), dtype=torch.uint8).reshape(-1, 1, 1, 1)
        return LabelledImages(pixels, torch.tensor(labels, dtype=torch.int64))

    two = (labelled(train), labelled(test))
    coarser = CoarseLabels(two[0].labels // 2, two[1].labels // 2, ("low", "high"))
    return ImageSet(*two, ("a", "b", "c"), coarser if coarse else None)


@pytest.fixture
def with_images(monkeypatch: pytest.MonkeyPatch) -> Callable[[ImageSet], None]:
    def use(images: ImageSet) -> None:
        monkeypatch.setattr("simulation.population.images.load_images", lambda *_: images)

    return use


def record_of(population: Population) -> PartitionRecord:
    assert population.partition is not None
    return population.partition


def test_clients_hold_the_images_that_the_record_names() -> None:
    config, digits = config_from(TABLES, "test"), load_images("digits")

    one, other = (build_population(config, None) for _ in range(2))

    assert list(one.clients) == [f"device-{number:04}" for number in range(1, 11)]
    assert record_of(one) == record_of(other)
    for client in record_of(one).clients:
        own, test = one.clients[client.name], one.own_test[client.name]
        assert isinstance(own, LabelledImages)
        assert isinstance(test, LabelledImages)
        assert torch.equal(own.pixels, digits.train.pixels[list(client.train)])
        assert torch.equal(test.labels, digits.test.labels[list(client.test)])
        assert client.train_counts == tuple(own.labels.bincount(minlength=10).tolist())
        assert sum(count > 0 for count in client.train_counts) == 2
        # Trained on and tested on the same classes.
        assert set(test.labels.tolist()) == set(own.labels.tolist())
    assert one.held_out == {}
    assert one.vocabulary is None


def test_another_seed_of_the_deal_is_another_population() -> None:
    deals = [
        record_of(build_population(configured(partition="iid", client_count=5, seed=seed), None))
        for seed in (1, 2)
    ]

    assert deals[0].clients != deals[1].clients


def test_one_image_is_a_client_and_none_is_not(
    with_images: Callable[[ImageSet], None],
) -> None:
    # Four images of one class and two clients each hold a class; class c has no test image.
    with_images(images_of([0] * 4 + [1] * 3 + [2] * 2, [0, 0, 0, 1, 1]))
    config = configured(partition="pathological", client_count=6, classes_per_client=1)

    population = build_population(config, None)

    # Two clients a class; of two images each share is rounded down to 0.8 to 1.2 of one: a client
    # whose share is below one gets none and is left out.
    record = record_of(population)
    assert all(client.train_size for client in record.clients)
    alone = [client for client in record.clients if client.train_counts[2]]
    assert [client.train_size for client in alone] == [1]
    assert "1 clients without an image to train on were left out" in population.notes
    unscored = [client.name for client in record.clients if not client.test_size]
    assert alone[0].name in unscored
    assert set(population.own_test) == set(population.clients) - set(unscored)
    assert f"{len(unscored)} clients have no image to test on" in population.notes[-1]


def test_a_deal_by_alpha_leaves_classes_out_of_clients(
    with_images: Callable[[ImageSet], None],
) -> None:
    with_images(images_of([0, 1, 2] * 60, [0, 1, 2] * 30))

    population = build_population(
        configured(partition="dirichlet-labels", client_count=4, concentration=0.1, least_images=2),
        None,
    )

    counts = np.array([client.train_counts for client in record_of(population).clients])
    assert counts.sum() == 180
    assert (counts == 0).any()
    assert counts.sum(axis=1).min() >= 2


def test_a_record_names_the_coarse_class_of_each_class_where_there_are_two_levels(
    with_images: Callable[[ImageSet], None],
) -> None:
    with_images(images_of([0, 1, 2] * 4, [0, 1, 2], coarse=True))
    two_levels = record_of(build_population(configured(partition="iid", client_count=2), None))
    with_images(images_of([0, 1, 2] * 4, [0, 1, 2]))
    one_level = record_of(build_population(configured(partition="iid", client_count=2), None))

    assert two_levels.coarse == ("low", "low", "high")
    assert b"coarse" not in one_level.encode()


def test_a_share_of_each_class_is_dealt_and_the_rest_is_nobodys(
    with_images: Callable[[ImageSet], None],
) -> None:
    labels = [0] * 40 + [1] * 20 + [2] * 1
    with_images(images_of(labels, [0, 1, 2] * 8))

    population = build_population(
        configured(partition="iid", client_count=3, image_share=0.25), None
    )

    record = record_of(population)
    # A quarter of 40, of 20 and, rounded up, of 1; of 8 test images of each class, 2.
    assert np.sum([client.train_counts for client in record.clients], axis=0).tolist() == [10, 5, 1]
    assert np.sum([client.test_counts for client in record.clients], axis=0).tolist() == [2, 2, 2]
    for client in record.clients:
        own = population.clients[client.name]
        assert isinstance(own, LabelledImages)
        # The pixels tell the place in the whole data set.
        assert tuple(own.pixels.flatten().tolist()) == client.train
        assert own.labels.tolist() == [labels[place] for place in client.train]


@pytest.mark.parametrize("partition", ["coarse-labels", "pachinko"])
def test_coarse_classes_must_be_there(
    with_images: Callable[[ImageSet], None], partition: str
) -> None:
    alpha = {"concentration": 0.3} if partition == "pachinko" else {}
    config = configured(partition=partition, client_count=2, **alpha)

    with_images(images_of([0, 1, 2] * 4, [0, 1, 2], coarse=True))
    sizes = [
        client.train_size + client.test_size
        for client in record_of(build_population(config, None)).clients
    ]
    assert sum(sizes) in (14, 15)

    with_images(images_of([0, 1, 2] * 4, [0, 1, 2]))
    with pytest.raises(PopulationError, match="needs coarse classes, and data set digits has none"):
        build_population(config, None)


def test_cameras_get_noisier_from_the_first_client_to_the_last() -> None:
    def build(noise: float) -> Population:
        return build_population(
            configured(partition="iid", client_count=3, pixel_noise=noise), None
        )

    clean, noisy = build(0.0), build(20.0)

    before, after = record_of(clean).clients, record_of(noisy).clients
    assert [client.train for client in before] == [client.train for client in after]
    spreads = []
    for name in clean.clients:
        exact, seen = clean.own_test[name], noisy.own_test[name]
        assert isinstance(exact, LabelledImages)
        assert isinstance(seen, LabelledImages)
        # Pixels near the middle are not clamped: what is left is the noise.
        middle = (exact.pixels > 80) & (exact.pixels < 175)
        spreads.append(float((seen.pixels[middle].double() - exact.pixels[middle]).std()))
    assert spreads[0] == 0.0
    # Some 1,000 draws each: within a tenth of sigma 10 and 20.
    assert abs(spreads[1] - 10) < 1
    assert abs(spreads[2] - 20) < 2


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"partition": "users"}, 'for task "image_classification", got "users"'),
        ({"partition": "pathological", "client_count": 5}, "classes_per_client belongs"),
        ({"client_count": 5, "classes_per_client": 2}, "classes_per_client belongs"),
        ({"partition": "dirichlet-labels", "client_count": 5}, "concentration belongs"),
        ({"client_count": 5, "fine_concentration": 1.0}, "fine_concentration belongs"),
        ({"client_count": 5, "least_images": 1}, "least_images belongs"),
        ({"client_count": 5, "image_share": 0.0}, r"image_share must be in \(0, 1\], got 0.0"),
        ({"client_count": 5, "pixel_noise": -1.0}, "pixel_noise must be >= 0"),
        (
            {"partition": "coarse-labels", "client_count": 5, "pixel_noise": 1.0},
            'a ladder over clients of partition = "iid"',
        ),
        ({"client_count": 5, "keystrokes": True}, 'needs task = "next_word"'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(data: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        configured(**data)


def test_a_record_is_kept_and_another_is_refused(tmp_path: Path) -> None:
    record = record_of(build_population(configured(partition="iid", client_count=5), None))
    folder = tmp_path / "run"

    keep_partition(folder, record)
    keep_partition(folder, record)

    kept = msgspec.json.decode((folder / PARTITION_FILE).read_bytes(), type=PartitionRecord)
    assert kept == record
    with pytest.raises(PartitionChangedError, match="is not how the data set is dealt now"):
        keep_partition(folder, msgspec.structs.replace(record, seed=2))
