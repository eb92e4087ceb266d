"""Rounds of real networks under each method: what travels, what stays, what predicts."""

import math
from typing import Any

import msgspec
import pytest
import torch

from edge_client.personalisation.state import PersonalState
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, TrainingSettings, download_schema, plan_schema
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import (
    DittoSettings,
    FedBnSettings,
    FedPerSettings,
    FedProxSettings,
    FedRepSettings,
    FedRodSettings,
    FedTpSettings,
    GlobalSettings,
    LocalSettings,
    PersonalisationSettings,
    PFedHnSettings,
    PFedMeSettings,
    VanillaSettings,
)
from models.tasks.image_classification import LabelledImages
from models.tasks.metrics import Counts
from models.vector.schema import Role
from privacy.clipping.clip import UnusableUpdateError
from privacy.noise.settings import NoNoise

CONVNET = ConvNetSettings(
    image_size=8,
    channel_count=1,
    pixel_mean=(0.5,),
    pixel_std=(0.5,),
    class_count=3,
    kernel_counts=(2, 2),
    kernel_size=3,
    padding=1,
    hidden_sizes=(6, 5),
    batch_norm=True,
)
VIT = VitSettings(
    image_size=8,
    channel_count=1,
    pixel_mean=(0.5,),
    pixel_std=(0.5,),
    class_count=3,
    model_size=8,
    head_count=2,
    head_size=4,
    layer_count=2,
    feedforward_size=8,
    dropout=0.0,
)
METHODS: list[tuple[PersonalisationSettings, ModelSettings]] = [
    (GlobalSettings(), CONVNET),
    (LocalSettings(), VIT),
    (FedProxSettings(), VIT),
    (FedPerSettings(), VIT),
    (FedRepSettings(), CONVNET),
    (FedBnSettings(), CONVNET),
    (PFedMeSettings(), CONVNET),
    (PFedHnSettings(), VIT),
    (FedRodSettings(), VIT),
    (VanillaSettings(), VIT),
    (FedTpSettings(), VIT),
    (FedTpSettings(head="personal"), VIT),
    (FedTpSettings(head="balanced"), VIT),
    (DittoSettings(), CONVNET),
]
NAMES = [f"{settings.method}-{getattr(settings, 'head', '')}" for settings, _ in METHODS]


def make_plan(settings: PersonalisationSettings, model: ModelSettings, **training: Any) -> Plan:
    fields: dict[str, Any] = {
        "learning_rate": 0.05,
        "local_epochs": 2,
        "batch_size": 5,
        "bptt_steps": 1,
        **training,
    }
    plan = Plan(
        run="00" * 16,
        task="image_classification",
        model=model,
        schema_sha256="00" * 32,
        training=TrainingSettings(**fields),
        personalisation=settings,
        privacy=NoNoise(),
        cohort_size=1,
        seed=4,
    )
    return msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())


def images(seed: int, count: int = 15, classes: int = 3) -> LabelledImages:
    """Return images that are brighter the higher their class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    noise = torch.randint(40, (count, 8, 8, 1), generator=generator)
    return LabelledImages((noise + 80 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels)


def received(plan: Plan) -> torch.Tensor:
    initial = initial_parameters(plan.model, plan.seed)
    return part_of(initial, schema_of(plan.model), download_schema(plan))


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "model"), METHODS, ids=NAMES)
def test_every_method_trains_keeps_and_predicts(
    settings: PersonalisationSettings, model: ModelSettings
) -> None:
    plan = make_plan(settings, model, local_epochs=20)
    trainer = LocalTrainer(plan)
    parameters, own = received(plan), images(1)
    before = trainer.evaluate(parameters, own, client_name="a", training_examples=own)

    result = trainer.train(parameters, own, round_number=1, client_name="a")
    after = trainer.evaluate(
        parameters + result.update,
        own,
        client_name="a",
        training_examples=own,
        personal=result.personal,
    )

    assert result.update.shape == (download_schema(plan).element_count,)
    assert after.token_count == before.token_count == 15
    assert after.log_loss_sum < before.log_loss_sum
    kept = plan_schema(plan).with_roles(Role.PERSONAL).element_count
    assert (result.personal is None) == trainer.layout.is_empty
    if result.personal is not None:
        assert result.personal.personal.shape == (kept,)


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "model"), METHODS, ids=NAMES)
def test_a_client_leaves_nothing_behind_for_the_next(
    settings: PersonalisationSettings, model: ModelSettings
) -> None:
    plan = make_plan(settings, model)
    trainer = LocalTrainer(plan)
    parameters = received(plan)
    names: Any = {"round_number": 2, "client_name": "b"}
    alone = LocalTrainer(plan).train(parameters, images(2), **names)

    first = trainer.train(parameters, images(1), round_number=1, client_name="a")
    trainer.evaluate(parameters, images(1), client_name="a", personal=first.personal)
    second = trainer.train(parameters, images(2), **names)

    assert torch.equal(second.update, alone.update)
    if alone.personal is not None and second.personal is not None:
        assert torch.equal(second.personal.personal, alone.personal.personal)
        for name, value in alone.personal.extras.items():
            assert torch.equal(second.personal.extras[name], value)


def test_a_personal_head_starts_where_the_run_does_and_goes_on_where_it_was_left() -> None:
    plan = make_plan(FedPerSettings(), VIT)
    trainer, parameters = LocalTrainer(plan), received(plan)
    everyones = LocalTrainer(make_plan(GlobalSettings(), VIT))
    initial = initial_parameters(VIT, plan.seed)

    apart = trainer.train(parameters, images(1), round_number=1, client_name="a")
    together = everyones.train(initial, images(1), round_number=1, client_name="a")
    again = trainer.train(
        parameters, images(1), round_number=2, client_name="a", personal=apart.personal
    )

    # One round of FedPer is one of FedAvg, of which the head stays at home.
    schema, head = plan_schema(plan), plan_schema(plan).with_roles(Role.PERSONAL)
    assert apart.personal is not None
    trained = initial + together.update
    torch.testing.assert_close(apart.personal.personal, part_of(trained, schema, head))
    torch.testing.assert_close(
        apart.update, part_of(together.update, schema, download_schema(plan))
    )
    assert again.personal is not None
    assert not torch.equal(again.personal.personal, apart.personal.personal)


def test_batch_norm_stays_with_its_running_statistics() -> None:
    plan = make_plan(FedBnSettings(), CONVNET)

    result = LocalTrainer(plan).train(received(plan), images(1), round_number=1, client_name="a")

    own = plan_schema(plan).with_roles(Role.PERSONAL)
    assert {name.rpartition(".")[2] for name in own.slices} == {
        "weight",
        "bias",
        "running_mean",
        "running_var",
        "batch_count",
    }
    assert not any("batch_norm" in name for name in download_schema(plan).slices)
    assert result.personal is not None
    # Two epochs of fifteen images in batches of five.
    assert result.personal.personal[own.slices["batch_norm1.batch_count"]].tolist() == [6]


def test_nothing_leaves_a_client_that_learns_by_itself() -> None:
    plan = make_plan(LocalSettings(), VIT)
    trainer = LocalTrainer(plan)

    result = trainer.train(torch.empty(0), images(1), round_number=1, client_name="a")

    assert result.update.shape == (0,)
    assert result.update_norm == 0
    assert result.personal is not None
    # It is what one client of a federation would have sent.
    everyone = make_plan(GlobalSettings(), VIT)
    initial = initial_parameters(VIT, plan.seed)
    alone = LocalTrainer(everyone).train(initial, images(1), round_number=1, client_name="a")
    torch.testing.assert_close(result.personal.personal, initial + alone.update)


@pytest.mark.parametrize(("settings", "model"), METHODS, ids=NAMES)
def test_a_client_with_one_image_or_one_class_trains_and_is_scored_on_the_others(
    settings: PersonalisationSettings, model: ModelSettings
) -> None:
    plan = make_plan(settings, model)
    trainer, parameters = LocalTrainer(plan), received(plan)
    for own in (images(1, count=1), images(1, count=6, classes=1)):
        result = trainer.train(parameters, own, round_number=1, client_name="a")
        counts = trainer.evaluate(
            parameters + result.update,
            images(2),
            client_name="a",
            training_examples=own,
            personal=result.personal,
        )

        assert bool(result.update.isfinite().all())
        assert counts.token_count == 15
        assert math.isfinite(counts.log_loss_sum)


@pytest.mark.parametrize(("settings", "model"), METHODS, ids=NAMES)
def test_an_empty_test_split_scores_nothing(
    settings: PersonalisationSettings, model: ModelSettings
) -> None:
    plan = make_plan(settings, model)

    counts = LocalTrainer(plan).evaluate(
        received(plan), images(1, count=0), client_name="a", training_examples=images(1)
    )

    assert counts == Counts()


def test_a_personal_part_that_ended_in_nan_is_an_error() -> None:
    plan = make_plan(LocalSettings(), VIT, learning_rate=1e30)

    with pytest.raises(UnusableUpdateError, match="personal tensors must be finite"):
        LocalTrainer(plan).train(torch.empty(0), images(1), round_number=1, client_name="a")


def test_a_state_of_another_method_is_refused() -> None:
    plan = make_plan(DittoSettings(), VIT)
    state = PersonalState(torch.empty(0), {"personal_head.weight": torch.zeros(3, 8)})

    with pytest.raises(ValueError, match=r"must hold \['own\..*got \['personal_head.weight'\]"):
        LocalTrainer(plan).train(
            received(plan), images(1), round_number=1, client_name="a", personal=state
        )
