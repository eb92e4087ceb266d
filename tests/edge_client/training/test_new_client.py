"""A client that took no part: what is its own is fitted, and nothing else moves."""

import math

import msgspec
import pytest
import torch
from torch import Tensor

from edge_client.training.local_round import LocalTrainer
from edge_client.training.new_client import Fitted, NewClientFit
from models.networks.role_vectors import part_of, put_part
from models.personal.hypernetwork import Hypernetwork, draw_embedding, draw_embeddings
from models.plan.plan import Plan, download_schema, plan_schema, released_schema
from models.settings.hypernetwork import EmbeddingFitSettings, HypernetworkSettings
from models.settings.model import ModelSettings
from models.settings.personalisation import (
    DittoSettings,
    FedBnSettings,
    FedPerSettings,
    FedRepSettings,
    FedRodSettings,
    FedTpSettings,
    GlobalSettings,
    LocalSettings,
    PersonalisationSettings,
    PFedGpSettings,
    PFedHnSettings,
    PFedMeSettings,
    VanillaSettings,
)
from models.tasks.image_classification import LabelledImages
from models.tasks.metrics import Counts
from models.tasks.unusable_examples import UnusableExamplesError
from models.vector.schema import Role
from tests.edge_client.personalisation.tiny_images import CONVNET, VIT, images, plan_of, started

SMALL = HypernetworkSettings(embedding_size=4, hidden_size=12, basis_size=4)
TRAIN, TEST = images([1, 4], 40, seed=1), images([1, 4], 40, seed=2)
NAME = "device-0009"


def plan(method: PersonalisationSettings) -> Plan:
    model: ModelSettings = msgspec.structs.replace(VIT, dropout=0.0)
    if not isinstance(method, FedTpSettings | VanillaSettings):
        model = msgspec.structs.replace(CONVNET, batch_norm=isinstance(method, FedBnSettings))
    made = plan_of(model, GlobalSettings())
    # FedRep's rounds have two epochs; a fit has as many as it is asked for.
    training = msgspec.structs.replace(made.training, local_epochs=2)
    return msgspec.structs.replace(made, training=training, personalisation=method)


def released(plan: Plan) -> Tensor:
    return part_of(started(plan), plan_schema(plan), released_schema(plan))


def hypernetwork(plan: Plan) -> Hypernetwork | None:
    settings = plan.personalisation
    if not isinstance(settings, FedTpSettings | PFedHnSettings):
        return None
    generated = plan_schema(plan).with_roles(Role.GENERATED)
    made = Hypernetwork(settings.hypernetwork, generated)
    initial = part_of(started(plan), plan_schema(plan), generated)
    made.initialise(torch.Generator().manual_seed(4), initial)
    return made


def fitted(
    plan: Plan, *, epochs: int = 3, learning_rate: float = 0.3, starts: int = 1
) -> list[Fitted]:
    """Return the models before fitting and after each epoch."""
    models: list[Fitted] = []

    def keep(epoch: int, model: Fitted) -> None:
        assert epoch == len(models)
        models.append(model)

    NewClientFit(plan, hypernetwork(plan)).fit(
        released(plan),
        TRAIN,
        client_name=NAME,
        settings=EmbeddingFitSettings(
            start_count=starts, epochs=epochs, learning_rate=learning_rate
        ),
        after_epoch=keep,
    )
    return models


def scored(plan: Plan, model: Fitted) -> Counts:
    return LocalTrainer(plan).evaluate(
        model.parameters,
        TEST,
        client_name=NAME,
        training_examples=TRAIN,
        personal=model.personal,
    )


FITTED: dict[str, tuple[PersonalisationSettings, int | None]] = {
    "fedtp": (FedTpSettings(hypernetwork=SMALL), 4),
    # Beside the embedding, a head of 8 features and 6 classes.
    "fedtp-fedper": (FedTpSettings(hypernetwork=SMALL, head="personal"), 4 + 54),
    "fedtp-fedrod": (FedTpSettings(hypernetwork=SMALL, head="balanced"), 4 + 54),
    "pfedhn": (PFedHnSettings(hypernetwork=SMALL), 4),
    # A head of 10 features and 6 classes.
    "fedper": (FedPerSettings(), 66),
    "fedrep": (FedRepSettings(), 66),
    "fedrod": (FedRodSettings(), 66),
    # Norms of 4, 8, 12 and 10 channels: weight, bias, mean, variance of each, and a count.
    "fedbn": (FedBnSettings(), 4 * 34 + 4),
    # 24 projections of a stream of 8.
    "vanilla": (VanillaSettings(), 192),
    "ditto": (DittoSettings(), None),
    "pfedme": (PFedMeSettings(inner_learning_rate=0.05), None),
    "local": (LocalSettings(), None),
    "global": (GlobalSettings(), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FITTED)
def test_what_is_fitted_serves_the_client_and_nothing_shared_moves(name: str) -> None:
    method, count = FITTED[name]
    asked = plan(method)
    shared = released_schema(asked)

    models = fitted(asked)

    losses = [scored(asked, model).mean_log_loss for model in models]
    assert len(losses) == 4
    # The network and its hypernetwork are as they were drawn: some parts can do little.
    assert losses[-1] < losses[0] - 1e-3
    expected = plan_schema(asked).element_count if count is None else count
    assert NewClientFit(asked, hypernetwork(asked)).fitted_count == expected
    for model in models:
        moved = part_of(model.parameters, download_schema(asked), shared) - released(asked)
        # Without anything of one's own everything is fitted; pFedMe trains a copy of it.
        moves_all = isinstance(method, GlobalSettings | PFedMeSettings) and model is not models[0]
        assert bool(moved.any()) == moves_all


def test_a_fit_starts_where_the_server_would_begin() -> None:
    asked = plan(FedTpSettings(hypernetwork=SMALL))
    made = hypernetwork(asked)
    assert made is not None

    first = fitted(asked, epochs=1)[0]

    start = made.generate(draw_embedding(4, run_seed=asked.seed, client_name=NAME))
    generated = part_of(first.parameters, download_schema(asked), made.generated)
    assert torch.equal(generated, start)


def test_the_best_of_several_draws_is_fitted() -> None:
    asked = plan(FedTpSettings(hypernetwork=SMALL))
    made = hypernetwork(asked)
    assert made is not None
    whole = download_schema(asked)
    received = torch.empty(whole.element_count)
    put_part(received, whole, released_schema(asked), released(asked))
    draws = draw_embeddings(4, 6, run_seed=asked.seed, client_name=NAME)
    losses = []
    for draw in draws:
        put_part(received, whole, made.generated, made.generate(draw))
        own = LocalTrainer(asked).evaluate(received, TRAIN, client_name=NAME)
        losses.append(own.mean_log_loss)
    best = draws[losses.index(min(losses))]
    assert best is not draws[0]

    # A step that moves nothing shows where the fit started.
    models = fitted(asked, epochs=1, learning_rate=1e-30, starts=6)

    first, started_from = (part_of(model.parameters, whole, made.generated) for model in models)
    assert torch.equal(first, made.generate(draws[0]))
    assert torch.equal(started_from, made.generate(best))


@pytest.mark.slow
def test_generated_tensors_stay_what_some_embedding_makes() -> None:
    asked = plan(FedTpSettings(hypernetwork=HypernetworkSettings(embedding_size=1)))
    made = hypernetwork(asked)
    assert made is not None
    models = fitted(asked)

    # All that one number can make lies on a bent line through 192 dimensions.
    made_so = [
        part_of(model.parameters, download_schema(asked), made.generated) for model in models
    ]
    grid = torch.stack([made.generate(torch.tensor([z])) for z in torch.linspace(-9, 9, 4001)])
    for generated in made_so:
        nearest = (grid - generated).norm(dim=1).min()
        assert float(nearest) < 0.02 * float(generated.norm())
    assert not torch.equal(made_so[0], made_so[-1])


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("own", [images([1], 1, seed=1), images([4], 5, seed=1)])
def test_one_image_or_one_class_is_enough(name: str, own: LabelledImages) -> None:
    asked = plan(FITTED[name][0])
    models: list[Fitted] = []

    NewClientFit(asked, hypernetwork(asked)).fit(
        released(asked),
        own,
        client_name=NAME,
        settings=EmbeddingFitSettings(start_count=3),
        after_epoch=lambda _, model: models.append(model),
    )

    assert len(models) == 2
    assert math.isfinite(scored(asked, models[-1]).log_loss_sum)


def test_a_tree_of_gaussian_processes_needs_no_fitting() -> None:
    asked = plan(PFedGpSettings())

    models = fitted(asked, epochs=2)

    assert NewClientFit(asked).fitted_count == 0
    assert torch.equal(models[0].parameters, models[-1].parameters)


def test_an_optimiser_goes_on_from_epoch_to_epoch() -> None:
    asked = plan(GlobalSettings())
    # All images in one batch: three epochs are three steps, in whatever order the images come.
    training = msgspec.structs.replace(
        asked.training, optimiser="adam", learning_rate=0.01, batch_size=40, local_epochs=3
    )
    asked = msgspec.structs.replace(asked, training=training)

    models = fitted(asked, epochs=3)

    trained = LocalTrainer(asked).train(
        released(asked), TRAIN, round_number=1, client_name=NAME, personal=None
    )
    moved = models[-1].parameters - models[0].parameters
    assert float(moved.norm()) > 0.1
    assert torch.allclose(moved, trained.update, atol=1e-4)


def test_the_same_fit_gives_the_same_bits() -> None:
    asked = plan(FedTpSettings(hypernetwork=SMALL))

    assert torch.equal(fitted(asked)[-1].parameters, fitted(asked)[-1].parameters)


def test_a_hypernetwork_must_be_there_and_examples_must_fit() -> None:
    asked = plan(FedTpSettings(hypernetwork=SMALL))
    with pytest.raises(ValueError, match='method "fedtp" generates tensors, and there is no'):
        NewClientFit(asked)
    with pytest.raises(UnusableExamplesError, match="at least 1 image"):
        NewClientFit(plan(GlobalSettings())).fit(
            released(plan(GlobalSettings())),
            TRAIN[:0],
            client_name=NAME,
            settings=EmbeddingFitSettings(),
            after_epoch=lambda epoch, model: None,
        )


def test_a_guess_is_what_the_losses_start_from() -> None:
    # Six classes: a model that knows nothing loses ln 6, and the fits above begin near it.
    start = scored(plan(GlobalSettings()), fitted(plan(GlobalSettings()), epochs=1)[0])

    assert start.mean_log_loss == pytest.approx(math.log(6), abs=0.6)
