"""DP-SGD through the trainer that simulation and device share."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import edge_client.training.example_training
from edge_client.training.local_result import LocalResult
from edge_client.training.local_round import LocalTrainer
from edge_client.training.users_scoring import evaluate_users
from models.networks.flat_parameters import initial_parameters, load_parameters, read_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan
from models.settings.model import GruLmSettings, TransformerLmSettings, WordModelSettings, schema_of
from models.tasks.text_streams import sentence_edges, sentence_window
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.secure_gaussian import NoiseKeys
from tests.edge_client.training_plan import MODEL, make_plan, make_text

TRANSFORMER = TransformerLmSettings(
    vocabulary_size=20, model_size=8, head_count=2, feedforward_size=16, context_size=4
)


class LabelKeys:
    """Keys that follow from the label: what is drawn can be drawn again."""

    repeats = True

    def __init__(self) -> None:
        self.labels: list[str] = []

    def draw(self, label: str, /) -> bytes:
        self.labels.append(label)
        return label.encode().ljust(32)[-32:]


def private_plan(
    *,
    model: WordModelSettings = MODEL,
    clipping_norm: float = 1.0,
    noise_multiplier: float = 1.0,
    sampling_rate: float = 0.5,
    **training: Any,
) -> Plan:
    privacy = ExamplePrivacySettings(
        clipping_norm=clipping_norm,
        noise_multiplier=noise_multiplier,
        sampling_rate=sampling_rate,
        delta=1e-5,
    )
    return make_plan(model=model, example_privacy=privacy, **training)


def train(
    plan: Plan, text: Tensor | None = None, keys: NoiseKeys | None = None, **keywords: Any
) -> LocalResult:
    return LocalTrainer(plan, keys=keys or LabelKeys()).train(
        initial_parameters(plan.model, seed=3),
        make_text(50) if text is None else text,
        round_number=1,
        client_name="device-0001",
        **keywords,
    )


@pytest.mark.parametrize("model", [MODEL, TRANSFORMER], ids=["gru", "transformer"])
def test_without_noise_and_clipping_it_is_gradient_descent_over_sentences(
    model: WordModelSettings,
) -> None:
    # Noise of 1e-9 times a norm that nobody has; every sentence in each of the two steps.
    plan = private_plan(
        model=model,
        clipping_norm=1000.0,
        noise_multiplier=1e-9,
        sampling_rate=1.0,
        local_epochs=2,
        momentum=0.5,
    )
    text = make_text(50)

    update = train(plan, text).update

    network, schema = build_network(model), schema_of(model)
    received = initial_parameters(model, seed=3)
    load_parameters(network, schema, received)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.5)
    window = sentence_window(text, sentence_edges(text, 4))
    for _ in range(2):
        features, _ = network.features(window.inputs, None)
        logits = features @ network.output_weight.t() + network.output_bias
        losses = [
            cross_entropy(own[right >= 0], right[right >= 0])
            for own, right in zip(logits, window.targets, strict=True)
        ]
        optimiser.zero_grad()
        torch.autograd.backward(torch.stack(losses).sum() / plan.training.batch_size)
        optimiser.step()
    # The grid of the noise is a thousandth of 1000 over the root of the elements: 0.05 a step.
    assert_close(update, read_parameters(network, schema) - received, rtol=0, atol=0.03)


def test_the_step_is_noise_of_the_stated_size() -> None:
    plan = private_plan(clipping_norm=0.5, noise_multiplier=40.0, sampling_rate=1.0)

    update = train(plan).update

    # One step: 0.5 * z * C / batch_size = 0.5 * 40 * 0.5 / 3, and a gradient of at most
    # 0.5 * 20 * 0.5 / 3 over 392 elements. The deviation of the estimate is 0.036 of itself.
    assert float(update.std()) == pytest.approx(0.5 * 40 * 0.5 / 3, rel=0.18)


def test_a_round_in_which_nobody_is_drawn_is_noise_alone() -> None:
    plan = private_plan(sampling_rate=0.01, local_epochs=1)
    text = torch.tensor([5, 1])

    for name in range(100):
        result = LocalTrainer(plan, keys=LabelKeys()).train(
            initial_parameters(MODEL, seed=3), text, round_number=1, client_name=f"device-{name}"
        )
        if math.isnan(result.mean_loss):
            break

    # One example in a hundred steps: nobody is drawn in 37 % of rounds.
    assert math.isnan(result.mean_loss)
    # A hundred steps of noise 0.5 / 3 each.
    assert float(result.update.std()) == pytest.approx(10 * 0.5 / 3, rel=0.2)


def test_one_sentence_moves_a_step_by_no_more_than_the_clipping_norm() -> None:
    # Long enough to be clipped hard, and the same keys: the difference is that sentence alone.
    plan = private_plan(clipping_norm=0.01, noise_multiplier=1e-6, sampling_rate=1.0)
    text = make_text(50)
    longer = torch.cat([text, torch.tensor([17, 17, 17, 1])])

    moved = train(plan, longer).update - train(plan, text).update

    largest = plan.training.learning_rate * 0.01 / plan.training.batch_size
    # The grid rounds both sums: a thousandth of the clipping norm.
    assert 0.5 * largest < float(moved.norm()) <= 1.01 * largest


def test_the_same_keys_give_the_same_bits_to_simulation_and_device() -> None:
    plan = private_plan()
    trainer = LocalTrainer(plan, keys=LabelKeys())
    parameters = initial_parameters(MODEL, seed=3)
    trainer.train(parameters, make_text(90, 5), round_number=1, client_name="device-0009")

    simulated = trainer.train(parameters, make_text(50), round_number=1, client_name="device-0001")

    assert torch.equal(simulated.update, train(plan).update)


def test_no_two_draws_of_a_run_share_a_key() -> None:
    keys = LabelKeys()

    train(private_plan(sampling_rate=0.1, local_epochs=2), keys=keys)

    # Coins and noise of twenty steps.
    assert len(keys.labels) == len(set(keys.labels)) == 40
    assert all("round 1 client device-0001" in label for label in keys.labels)


def test_outside_tests_nothing_can_be_drawn_again() -> None:
    plan, parameters = private_plan(), initial_parameters(MODEL, seed=3)

    once, again = (
        LocalTrainer(plan)
        .train(parameters, make_text(50), round_number=1, client_name="device-0001")
        .update
        for _ in range(2)
    )

    assert not torch.equal(once, again)


def test_the_example_count_does_not_tell_how_much_a_person_typed() -> None:
    plan = private_plan(sampling_rate=0.25)

    # 3 / 0.25 examples of up to 4 tokens.
    assert train(plan, make_text(50)).example_count == 48
    assert train(plan, make_text(7)).example_count == 48


def test_a_batch_larger_than_memory_is_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = private_plan()
    whole = train(plan)

    # Room for the scores of four tokens: one sentence at a time.
    monkeypatch.setattr(edge_client.training.example_training, "_LOGITS", 4 * 20)
    parts = train(plan)

    assert_close(parts.update, whole.update, rtol=1e-4, atol=1e-5)
    assert parts.mean_loss == pytest.approx(whole.mean_loss)


def test_it_learns_where_there_is_enough_text_to_hide_in() -> None:
    text = torch.tensor([5, 9, 3, 1]).repeat(2000)
    plan = private_plan(
        sampling_rate=0.05, batch_size=100, local_epochs=2, learning_rate=5.0, bptt_steps=4
    )

    result = train(plan, text)

    received = initial_parameters(MODEL, seed=3)
    assert evaluate_users(plan, received, [text]).perplexity > 15
    assert evaluate_users(plan, received + result.update, [text]).perplexity < 5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"precision": "bfloat16"}, "precision must be float32"),
        ({"gradient_clipping_norm": 1.0}, "gradient_clipping_norm must be absent"),
        (
            {"model": GruLmSettings(vocabulary_size=20, hidden_size=6, dropout=0.1)},
            "dropout must be 0",
        ),
    ],
)
def test_settings_that_would_break_the_bound_are_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        private_plan(**changes)
