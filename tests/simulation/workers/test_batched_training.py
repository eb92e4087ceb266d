"""Clients that are trained together come to what each comes to by itself, up to rounding."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from edge_client.descent.compute import prepare_compute
from edge_client.training.local_result import LocalResult
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters
from models.networks.role_vectors import part_of
from models.plan.plan import (
    Plan,
    TrainingSettings,
    VocabularySettings,
    download_schema,
    plan_schema,
)
from models.settings.compression import CompressionSettings
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.learning_rate import LearningRateDecay
from models.settings.model import GruLmSettings, ModelSettings, schema_of
from models.settings.personalisation import (
    DittoSettings,
    FedPerSettings,
    FedTpSettings,
    GlobalSettings,
    LocalSettings,
    PersonalisationSettings,
)
from models.tasks.image_classification import LabelledImages
from privacy.noise.settings import NoNoise, PrivacySettings
from simulation.workers.batched_training import BatchedTrainer, ClientWork
from simulation.workers.dropout_masks import DropoutMasks
from simulation.workers.engine import WorkerError
from simulation.workers.jobs import Trained
from simulation.workers.local import LocalWorkers
from simulation.workers.pool import WorkerPool
from simulation.workers.state_shelf import StateShelf
from simulation.workers.together import TogetherError

# Batches of 8 and fewer: 3, 1, 2 and 3 steps an epoch, of 6 to 8, 1, 5 and 6 to 7 images.
SIZES = {"a": 20, "b": 1, "c": 10, "d": 19}
IMAGE: dict[str, Any] = {
    "image_size": 8,
    "channel_count": 1,
    "pixel_mean": (0.5,),
    "pixel_std": (0.5,),
    "class_count": 3,
}
VIT = VitSettings(
    **IMAGE,
    model_size=8,
    head_count=2,
    head_size=4,
    layer_count=2,
    feedforward_size=8,
    dropout=0.0,
)
DROPPING = msgspec.structs.replace(VIT, dropout=0.3)
CONVNET = ConvNetSettings(
    **IMAGE, kernel_counts=(2, 2), kernel_size=3, padding=1, hidden_sizes=(6, 5)
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    prepare_compute("cpu", threads=1, model=VIT)


def make_plan(
    model: ModelSettings = VIT,
    method: PersonalisationSettings | None = None,
    privacy: PrivacySettings | None = None,
    **training: Any,
) -> Plan:
    fields: dict[str, Any] = {
        "learning_rate": 0.05,
        "local_epochs": 3,
        "batch_size": 8,
        **training,
    }
    is_image = isinstance(model, VitSettings | ConvNetSettings)
    plan = Plan(
        run="00" * 16,
        task="image_classification" if is_image else "next_word",
        model=model,
        schema_sha256="00" * 32,
        vocabulary=None if is_image else VocabularySettings(name="x", size=20, sha256="00" * 32),
        training=TrainingSettings(**fields),
        personalisation=method or GlobalSettings(),
        privacy=privacy or NoNoise(),
        cohort_size=1,
        seed=4,
    )
    return msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())


def images(name: str, count: int) -> LabelledImages:
    """Return images that are brighter the higher their class, other ones for each client."""
    generator = torch.Generator().manual_seed(ord(name))
    labels = torch.randint(3, (count,), generator=generator)
    noise = torch.randint(40, (count, 8, 8, 1), generator=generator)
    return LabelledImages((noise + 80 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels)


EXAMPLES = {name: images(name, count) for name, count in SIZES.items()}


def received(plan: Plan, name: str) -> Tensor:
    """Return what a client receives: where the method generates, each has its own."""
    seed = 1 + len(plan_schema(plan).tensors) - len(download_schema(plan).tensors)
    own = ord(name) if isinstance(plan.personalisation, FedTpSettings) else seed
    return part_of(
        initial_parameters(plan.model, own), schema_of(plan.model), download_schema(plan)
    )


def alone(plan: Plan, personal: Mapping[str, LocalResult] | None = None) -> dict[str, LocalResult]:
    trainer = LocalTrainer(plan)
    return {
        name: trainer.train(
            received(plan, name),
            own,
            round_number=2,
            client_name=name,
            personal=personal[name].personal if personal else None,
        )
        for name, own in EXAMPLES.items()
    }


def together(
    plan: Plan, personal: Mapping[str, LocalResult] | None = None
) -> dict[str, LocalResult | None]:
    works = []
    for name, own in EXAMPLES.items():
        kept = personal[name].personal if personal else None
        works.append(
            ClientWork(name, received(plan, name), own, None if kept is None else kept.personal)
        )
    results = BatchedTrainer(plan).train(works, round_number=2, clipping_norm=None)
    return dict(zip(EXAMPLES, results, strict=True))


def assert_alike(
    batched: Mapping[str, LocalResult | None], single: Mapping[str, LocalResult]
) -> None:
    assert batched.keys() == single.keys()
    for name, one in single.items():
        other = batched[name]
        assert other is not None
        torch.testing.assert_close(other.update, one.update, rtol=1e-4, atol=2e-6)
        assert other.update_norm == pytest.approx(one.update_norm, rel=1e-4)
        assert other.mean_loss == pytest.approx(one.mean_loss, rel=1e-5)
        assert other.example_count == one.example_count
        assert (other.personal is None) == (one.personal is None)
        if one.personal is not None and other.personal is not None:
            torch.testing.assert_close(
                other.personal.personal, one.personal.personal, rtol=1e-4, atol=2e-6
            )


PLANS = {
    "sgd": make_plan(),
    "momentum": make_plan(momentum=0.9, weight_decay=0.01),
    "adam": make_plan(optimiser="adam", learning_rate=0.01),
    "decay": make_plan(decay=LearningRateDecay(last_round=2, final_share=0.1)),
    "gradient-clipping": make_plan(gradient_clipping_norm=0.3),
    "update-clipping": make_plan(privacy=NoNoise(clipping_norm=0.05)),
    "convnet": make_plan(CONVNET),
    "dropout": make_plan(DROPPING),
    "dropout-fedtp": make_plan(DROPPING, method=FedTpSettings()),
    "fedtp": make_plan(method=FedTpSettings()),
    "local": make_plan(method=LocalSettings()),
}


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_together_and_one_by_one_come_to_the_same(plan: Plan) -> None:
    assert_alike(together(plan), alone(plan))


def test_each_client_drops_what_it_would_drop_alone_whoever_trains_beside_it() -> None:
    plan = make_plan(DROPPING)
    # The same images and the same start: what tells these two apart is their dropout alone.
    plan_of_one_order = msgspec.structs.replace(
        plan, training=msgspec.structs.replace(plan.training, batch_size=20, local_epochs=1)
    )
    works = [ClientWork(name, received(plan, "a"), EXAMPLES["a"], None) for name in ("a", "b", "c")]

    both = BatchedTrainer(plan_of_one_order).train(works[:2], round_number=2, clipping_norm=None)
    three = BatchedTrainer(plan_of_one_order).train(works[::-1], round_number=2, clipping_norm=None)

    first, second = both
    assert first is not None
    assert second is not None
    assert not torch.allclose(first.update, second.update, atol=1e-3)
    again = three[2]
    assert again is not None
    torch.testing.assert_close(again.update, first.update, rtol=1e-4, atol=2e-6)


def test_masks_are_the_clients_own_and_padding_drops_nothing() -> None:
    dropouts = [(0.25, (400,)), (0.5, (3, 200))]

    masks = DropoutMasks(dropouts, [7, 8], torch.device("cpu"))
    first, second = masks.of_step([5, 2], 6)
    (later, _) = masks.of_step([5], 6)

    # By hand, in the order in which the network of client 7 would draw.
    alone = torch.Generator().manual_seed(7)
    assert torch.equal(first[0, :5], torch.empty(5, 400).bernoulli_(0.75, generator=alone) / 0.75)
    assert torch.equal(second[0, :5], torch.empty(5, 3, 200).bernoulli_(0.5, generator=alone) / 0.5)
    assert torch.equal(later[0, :5], torch.empty(5, 400).bernoulli_(0.75, generator=alone) / 0.75)
    assert not torch.equal(first[0, :2], first[1, :2])
    assert torch.equal(first[1, 2:], torch.ones(4, 400))


def test_a_client_takes_up_what_it_kept() -> None:
    plan = make_plan(method=FedPerSettings())
    first = alone(plan)

    batched, single = together(plan, first), alone(plan, first)

    assert_alike(batched, single)
    # It was read: without it the round would end elsewhere.
    fresh = alone(plan)["a"].personal
    own = single["a"].personal
    assert fresh is not None
    assert own is not None
    assert not torch.allclose(fresh.personal, own.personal, atol=1e-3)


def test_a_client_that_diverges_takes_nobody_along() -> None:
    plan = make_plan()
    broken = received(plan, "a").clone()
    broken[:] = 1e30
    works = [
        ClientWork(name, broken if name == "b" else received(plan, name), own, None)
        for name, own in EXAMPLES.items()
    ]

    results = BatchedTrainer(plan).train(works, round_number=2, clipping_norm=None)

    assert results[1] is None
    single = alone(plan)
    assert_alike(
        {name: result for name, result in zip(EXAMPLES, results, strict=True) if name != "b"},
        {name: result for name, result in single.items() if name != "b"},
    )


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (make_plan(GruLmSettings(vocabulary_size=20, hidden_size=4)), 'family "gru_lm" reads text'),
        (
            make_plan(msgspec.structs.replace(CONVNET, batch_norm=True)),
            "a batch norm changes its running statistics",
        ),
        (make_plan(method=DittoSettings()), 'method "ditto" has a training of its own'),
        (make_plan(optimiser_state="kept"), 'optimiser_state is "kept"'),
        (make_plan(precision="bfloat16"), 'precision is "bfloat16"'),
    ],
)
def test_what_cannot_be_stacked_is_refused_before_anything_starts(plan: Plan, reason: str) -> None:
    with pytest.raises(TogetherError, match=f"{reason}.*leave --together out"):
        WorkerPool(plan, EXAMPLES, worker_count=1, together=2)


def pool_round(
    plan: Plan,
    folder: Path,
    *,
    together: int,
    worker_count: int = 1,
    device: str = "cpu",
    round_number: int = 2,
) -> list[Trained]:
    shelf = StateShelf(folder / f"{together}-{worker_count}")
    with WorkerPool(
        plan,
        EXAMPLES,
        worker_count=worker_count,
        states=shelf,
        together=together,
        engine=partial(LocalWorkers, device=device),
    ) as pool:
        return [
            result._replace(update=None if result.update is None else result.update.clone())
            for result in pool.train(
                received(plan, "a"), list(enumerate(EXAMPLES)), round_number=round_number
            )
        ]


@pytest.mark.slow
def test_a_pool_gives_the_same_results_in_slot_order(tmp_path: Path) -> None:
    plan = make_plan(method=FedPerSettings())

    single = pool_round(plan, tmp_path, together=1)
    # Groups of three and one.
    batched = pool_round(plan, tmp_path, together=3)
    many = pool_round(plan, tmp_path, together=3, worker_count=2)

    for one, other, again in zip(single, batched, many, strict=True):
        assert (other.slot, other.client_name) == (one.slot, one.client_name)
        assert one.update is not None
        assert other.update is not None
        assert again.update is not None
        torch.testing.assert_close(other.update, one.update, rtol=1e-4, atol=2e-6)
        # Groups follow from the cohort alone.
        assert torch.equal(again.update, other.update)
    kept = [sorted((tmp_path / f"{n}-1").glob("*/000002.bin")) for n in (1, 3)]
    assert [len(paths) for paths in kept] == [4, 4]


@pytest.mark.slow
def test_what_a_clients_update_lost_is_fed_back_in_a_group_too(tmp_path: Path) -> None:
    # The largest travel unrounded, and lie too far apart for the last bit to swap two.
    settings = CompressionSettings(
        uplink="none", keep="top", keep_fraction=0.05, error_feedback=True
    )
    plan = msgspec.structs.replace(make_plan(), compression=settings)

    single, batched = (
        [pool_round(plan, tmp_path, together=n, round_number=number) for number in (1, 2)]
        for n in (1, 3)
    )

    for alone_in, together_in in zip(single, batched, strict=True):
        for one, other in zip(alone_in, together_in, strict=True):
            assert one.update is not None
            assert other.update is not None
            torch.testing.assert_close(other.update, one.update, rtol=1e-4, atol=2e-6)
    # It is kept: without what round 1 lost, round 2 would end elsewhere.
    fresh = pool_round(plan, tmp_path / "fresh", together=3)
    for first_time, second_time in zip(fresh, batched[1], strict=True):
        assert first_time.update is not None
        assert second_time.update is not None
        assert not torch.allclose(first_time.update, second_time.update, atol=1e-3)


def test_a_client_without_images_is_named(tmp_path: Path) -> None:
    plan = make_plan()
    examples = {**EXAMPLES, "c": images("c", 0)}

    with (
        WorkerPool(plan, examples, worker_count=1, together=4) as pool,
        pytest.raises(WorkerError, match=r"^c: there must be at least 1 image"),
    ):
        list(pool.train(received(plan, "a"), list(enumerate(examples)), round_number=1))


def test_a_group_has_at_least_one_client() -> None:
    with pytest.raises(ValueError, match="together must be >= 1, got 0"):
        WorkerPool(make_plan(), EXAMPLES, worker_count=1, together=0)
