import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import ImageNetwork, WrongFamilyError, build_network, image_network
from models.plan.plan import TrainingSettings
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.model import GruLmSettings, ImageModelSettings, schema_of
from models.tasks.image_classification import ImageClassification, LabelledImages
from models.tasks.metrics import Counts
from models.tasks.registry import task_named
from models.tasks.unusable_examples import UnusableExamplesError

VIT = VitSettings(class_count=5, image_size=8, model_size=8, head_count=2, head_size=4, dropout=0.0)
CONVNET = ConvNetSettings(
    class_count=5, image_size=8, padding=2, hidden_sizes=(12, 8), batch_norm=True
)
TASK = ImageClassification()


def network_of(settings: ImageModelSettings) -> ImageNetwork:
    network = image_network(build_network(settings))
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=1))
    return network


def examples(count: int, seed: int = 0) -> LabelledImages:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 8, 8, 3), generator=generator).to(torch.uint8)
    return LabelledImages(pixels, torch.randint(5, (count,), generator=generator))


def training(batch_size: int) -> TrainingSettings:
    return TrainingSettings(learning_rate=0.1, batch_size=batch_size, bptt_steps=1)


def test_a_pass_holds_every_image_once_in_an_order_of_the_generator() -> None:
    images, network = examples(23), network_of(VIT)

    def one_pass(seed: int) -> list[LabelledImages]:
        generator = torch.Generator().manual_seed(seed)
        return list(TASK.batches(images, training(8), network, generator))

    first = one_pass(1)
    seen = torch.cat([batch.pixels for batch in first]).flatten(1)

    assert [len(batch) for batch in first] == [8, 8, 7]
    assert sorted(seen.tolist()) == sorted(images.pixels.flatten(1).tolist())
    assert torch.equal(torch.cat([batch.pixels for batch in one_pass(1)]).flatten(1), seen)
    assert not torch.equal(torch.cat([batch.pixels for batch in one_pass(2)]).flatten(1), seen)


@pytest.mark.parametrize(("count", "sizes"), [(9, [5, 4]), (1, [1]), (8, [8]), (17, [6, 6, 5])])
def test_no_image_is_left_alone_in_a_last_batch(count: int, sizes: list[int]) -> None:
    batches = TASK.batches(examples(count), training(8), network_of(VIT), torch.Generator())

    assert [len(batch) for batch in batches] == sizes


def test_images_keep_their_labels() -> None:
    images = examples(10)
    label_of = {
        tuple(pixels): label
        for pixels, label in zip(
            images.pixels.flatten(1).tolist(), images.labels.tolist(), strict=True
        )
    }

    for batch in TASK.batches(images, training(3), network_of(VIT), torch.Generator()):
        for pixels, label in zip(batch.pixels.flatten(1).tolist(), batch.labels, strict=True):
            assert label_of[tuple(pixels)] == int(label)


@pytest.mark.parametrize("settings", [VIT, CONVNET])
def test_the_loss_is_the_mean_cross_entropy(settings: ImageModelSettings) -> None:
    network, batch = network_of(settings).eval(), examples(6)

    loss, count, state = TASK.loss(network, batch, None)

    assert_close(loss, cross_entropy(network.head(network.features(batch.pixels)), batch.labels))
    assert (count, state) == (6, None)


@pytest.mark.parametrize("settings", [VIT, CONVNET])
def test_scores_do_not_depend_on_the_batch_size_nor_on_who_is_scored_along(
    settings: ImageModelSettings,
) -> None:
    network = network_of(settings).train()
    users = [examples(20, 1), examples(1, 2), examples(9, 3)]

    one, many = (TASK.evaluate(network, users, batch_size=size) for size in (1, 64))
    apart = [TASK.evaluate(network, [user]) for user in users]

    assert one.token_count == many.token_count == 30
    assert many.log_loss_sum == pytest.approx(one.log_loss_sum, rel=1e-5)
    assert (one.top1_hits, one.top3_hits) == (many.top1_hits, many.top3_hits)
    assert sum(apart, start=Counts()).log_loss_sum == pytest.approx(many.log_loss_sum, rel=1e-6)


@torch.no_grad()
def test_hits_are_those_of_a_sorted_list() -> None:
    network, images = network_of(VIT).eval(), examples(60)
    ranked = network.head(network.features(images.pixels)).argsort(dim=1, descending=True)
    places = (ranked == images.labels.unsqueeze(1)).int().argmax(1)

    counts = TASK.evaluate(network, [images])

    assert counts.top1_hits == int((places == 0).sum())
    assert counts.top3_hits == int((places < 3).sum())
    assert counts.accuracy == counts.top1_hits / 60


def test_a_network_of_zeros_knows_nothing() -> None:
    counts = TASK.evaluate(build_network(VIT), [examples(10)])

    assert counts.perplexity == pytest.approx(5)


def test_scoring_leaves_running_statistics_alone() -> None:
    network = network_of(CONVNET).train()
    before = network.state_dict()["batch_norm1.running_mean"].clone()

    TASK.evaluate(network, [examples(8)])

    assert torch.equal(network.state_dict()["batch_norm1.running_mean"], before)
    assert TASK.evaluate(network, []) == Counts()


@pytest.mark.parametrize("settings", [VIT, CONVNET])
@pytest.mark.parametrize("count", [1, 7])
def test_a_client_with_one_image_or_one_class_trains(
    settings: ImageModelSettings, count: int
) -> None:
    network = network_of(settings).train()
    images = LabelledImages(examples(count).pixels, torch.full((count,), 2))
    TASK.check(images, network)
    (batch,) = TASK.batches(images, training(16), network, torch.Generator())

    losses = []
    for _ in range(20):
        loss, _, _ = TASK.loss(network, batch, None)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter.sub_(gradient, alpha=0.1)
        losses.append(float(loss.detach()))

    assert losses[-1] < 0.2 < losses[0]
    assert math.isfinite(losses[-1])


PIXELS = torch.zeros(2, 8, 8, 3, dtype=torch.uint8)
LABELS = torch.tensor([0, 4])


@pytest.mark.parametrize(
    ("pixels", "labels", "says"),
    [
        (PIXELS[:0], LABELS[:0], "at least 1 image to train on, got 0"),
        (PIXELS[:, :4], LABELS, r"shape \(2, 8, 8, 3\).*got torch.uint8 of shape \(2, 4, 8, 3\)"),
        (PIXELS[:1], LABELS, r"shape \(2, 8, 8, 3\), one a label"),
        (PIXELS.float(), LABELS, "must be uint8 of shape"),
        (PIXELS, LABELS.int(), "labels must be int64"),
        (PIXELS, LABELS.unsqueeze(1), "labels must be int64 of shape"),
        (PIXELS, torch.tensor([0, 5]), r"labels must be in \[0, 5\)"),
        (PIXELS, torch.tensor([-1, 0]), r"labels must be in \[0, 5\)"),
    ],
)
def test_images_that_cannot_be_trained_on_are_refused(
    pixels: Tensor, labels: Tensor, says: str
) -> None:
    with pytest.raises(UnusableExamplesError, match=says):
        TASK.check(LabelledImages(pixels, labels), network_of(VIT))


def test_a_model_of_words_is_refused_and_so_is_one_of_images_for_words() -> None:
    words = build_network(GruLmSettings(vocabulary_size=9, hidden_size=2))

    with pytest.raises(WrongFamilyError, match="classes of images, got GruLm; set"):
        TASK.check(examples(2), words)
    with pytest.raises(WrongFamilyError, match="next words, got Vit; set"):
        task_named("next_word").check(torch.tensor([3, 4]), network_of(VIT))
