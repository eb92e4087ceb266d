import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import edge_client.descent.descent
import edge_client.training.local_round
from edge_client.training.local_result import LocalResult
from edge_client.training.local_round import LocalTrainer
from edge_client.training.users_scoring import evaluate_users
from models.networks.flat_parameters import initial_parameters, load_parameters, read_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan
from models.settings.learning_rate import LearningRateDecay
from models.settings.model import GruLmSettings, TransformerLmSettings, schema_of
from models.tasks.next_word import NextWord
from models.tasks.unusable_examples import UnusableExamplesError
from models.vector.seeds import client_seed
from privacy.clipping.clip import UnusableUpdateError
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.settings import NoNoise, PaperNoise
from tests.edge_client.training_plan import MODEL, make_plan, make_text

PARAMETERS = initial_parameters(MODEL, seed=3)


def train(
    plan: Plan, text: Tensor | None = None, *, device: str = "cpu", **keywords: Any
) -> LocalResult:
    keywords = {"round_number": 1, "client_name": "device-0001", **keywords}
    text = make_text(50) if text is None else text
    return LocalTrainer(plan, device).train(PARAMETERS, text, **keywords)


class PlainModel(nn.Module):
    """The same model from the framework's own parts, names as in the schema."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.gru = nn.GRU(6, 6, batch_first=True)
        self.output = nn.Linear(6, 20)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        hidden, state = self.gru(self.embedding(tokens), state)
        return self.output(hidden), state


def train_plainly(plan: Plan, optimiser_type: Any, **settings: Any) -> tuple[Tensor, float]:
    """Train with the framework's own loss and optimiser; return the update and the mean loss."""
    model = PlainModel()
    schema = schema_of(MODEL)
    load_parameters(model, schema, PARAMETERS)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in plan.training.frozen)
    optimiser = optimiser_type(model.parameters(), lr=plan.training.learning_rate, **settings)
    generator = torch.Generator().manual_seed(client_seed(plan.seed, 1, "device-0001"))
    losses = []
    for _ in range(plan.training.local_epochs):
        state = None
        for window in NextWord().batches(
            make_text(50), plan.training, build_network(MODEL), generator
        ):
            logits, state = model(window.inputs, state)
            used = window.targets >= 0
            loss = cross_entropy(logits[used], window.targets[used])
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            if plan.training.gradient_clipping_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), plan.training.gradient_clipping_norm)
            optimiser.step()
            state = state.detach()
            losses.append((float(loss.detach()), int(used.sum())))
    mean = sum(loss * count for loss, count in losses) / sum(count for _, count in losses)
    return read_parameters(model, schema) - PARAMETERS, mean


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"momentum": 0.5, "local_epochs": 3},
        {"momentum": 0.9, "weight_decay": 0.01, "gradient_clipping_norm": 0.05},
    ],
)
def test_sgd_ends_where_the_frameworks_own_loop_ends(training: dict[str, Any]) -> None:
    plan = make_plan(**training)

    result = train(plan)

    expected, mean_loss = train_plainly(
        plan,
        torch.optim.SGD,
        momentum=plan.training.momentum,
        weight_decay=plan.training.weight_decay,
    )
    assert_close(result.update, expected, rtol=1e-4, atol=1e-6)
    assert result.mean_loss == pytest.approx(mean_loss, rel=1e-5)


@pytest.mark.parametrize(
    "frozen",
    [
        ("embedding.weight",),
        ("gru.weight_ih_l0", "gru.bias_hh_l0"),
        ("embedding.weight", "gru.weight_ih_l0", "gru.weight_hh_l0", "gru.bias_ih_l0"),
        # Nothing is left below the output.
        ("embedding.weight", *(name for name in schema_of(MODEL).slices if "gru" in name)),
    ],
)
def test_frozen_tensors_stay_and_are_not_in_the_update(frozen: tuple[str, ...]) -> None:
    plan = make_plan(
        frozen=frozen, local_epochs=2, momentum=0.5, gradient_clipping_norm=0.05, weight_decay=0.01
    )

    result = train(plan)

    whole, mean_loss = train_plainly(plan, torch.optim.SGD, momentum=0.5, weight_decay=0.01)
    left = [part for name, part in schema_of(MODEL).slices.items() if name not in frozen]
    assert_close(result.update, torch.cat([whole[part] for part in left]), rtol=1e-4, atol=1e-6)
    assert result.update_norm == pytest.approx(float(whole.norm()), rel=1e-4)
    assert result.mean_loss == pytest.approx(mean_loss, rel=1e-5)


def test_memory_that_holds_the_trained_tensors_alone_is_as_good() -> None:
    plan = make_plan(frozen=("embedding",))
    expected = train(plan).update

    into = torch.zeros(len(expected))
    result = LocalTrainer(plan).train(
        PARAMETERS, make_text(50), round_number=1, client_name="device-0001", into=into
    )

    assert torch.equal(result.update, expected)


def test_adam_ends_where_the_frameworks_own_loop_ends() -> None:
    plan = make_plan(optimiser="adam", learning_rate=0.01, local_epochs=2)

    expected, _ = train_plainly(plan, torch.optim.Adam)

    assert_close(train(plan).update, expected, rtol=1e-3, atol=1e-5)


def test_training_learns_a_text_that_repeats_itself() -> None:
    text = torch.tensor([5, 9, 3, 7, 1]).repeat(40)
    plan = make_plan(learning_rate=2.0, local_epochs=10, gradient_clipping_norm=5.0)

    result = train(plan, text)

    before = evaluate_users(plan, PARAMETERS, [text])
    after = evaluate_users(plan, PARAMETERS + result.update, [text])
    # Every word follows from the one before: perplexity can fall from 20 to 1.
    assert before.perplexity == pytest.approx(20, rel=0.05)
    assert after.perplexity < 2
    assert after.top1_recall > 0.9


def test_the_same_round_gives_the_same_bits_and_another_does_not() -> None:
    plan = make_plan(model=GruLmSettings(vocabulary_size=20, hidden_size=6, dropout=0.3))

    first = train(plan)
    torch.manual_seed(99)

    assert torch.equal(train(plan).update, first.update)
    assert not torch.equal(train(plan, round_number=2).update, first.update)
    assert not torch.equal(train(plan, client_name="device-0002").update, first.update)


def test_training_leaves_the_global_generator_and_the_received_parameters_alone() -> None:
    received, drawn = PARAMETERS.clone(), torch.get_rng_state()

    train(make_plan(model=GruLmSettings(vocabulary_size=20, hidden_size=6, dropout=0.3)))

    assert torch.equal(PARAMETERS, received)
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_client_leaves_nothing_behind_for_the_next() -> None:
    plan = make_plan(momentum=0.9)
    trainer = LocalTrainer(plan)
    trainer.train(PARAMETERS, make_text(90, 5), round_number=1, client_name="device-0009")

    after = trainer.train(PARAMETERS, make_text(50), round_number=1, client_name="device-0001")

    assert torch.equal(after.update, train(plan).update)


def test_the_update_lies_where_it_was_asked_to_and_the_one_before_stays_as_it_was() -> None:
    trainer = LocalTrainer(make_plan())
    first, second = torch.empty_like(PARAMETERS), torch.empty_like(PARAMETERS)
    names: Any = {"round_number": 1, "client_name": "device-0001"}

    trainer.train(PARAMETERS, make_text(50), **names, into=first)
    update = trainer.train(PARAMETERS, make_text(90, 5), **names, into=second).update

    assert update.data_ptr() == second.data_ptr()
    assert torch.equal(first, train(make_plan()).update)


@pytest.mark.parametrize(("tokens", "cap"), [(50, 1000), (50, 20), (2, 1000)])
def test_the_example_count_is_that_of_one_pass_whatever_a_client_weighs(
    tokens: int, cap: int
) -> None:
    plan = make_plan(local_epochs=3, example_cap=cap)

    assert train(plan, make_text(tokens)).example_count == tokens


def test_a_client_with_two_tokens_trains_and_one_with_one_is_refused() -> None:
    plan = make_plan(batch_size=64)

    assert float(train(plan, make_text(2)).update.norm()) > 0
    with pytest.raises(UnusableExamplesError, match="at least 2 tokens"):
        train(plan, make_text(1))


def test_a_kept_state_continues_and_a_fresh_one_does_not() -> None:
    kept, fresh = (make_plan(momentum=0.9, optimiser_state=kind) for kind in ("kept", "fresh"))

    first = train(kept)
    continued = train(kept, optimiser_state=first.optimiser_state)
    given_but_fresh = train(fresh, optimiser_state=first.optimiser_state)

    assert first.optimiser_state is not None
    assert not torch.equal(continued.update, first.update)
    assert train(fresh).optimiser_state is None
    assert torch.equal(given_but_fresh.update, first.update)


def test_two_rounds_with_a_kept_state_are_one_run_of_momentum() -> None:
    # The text is one window, so that a round is one step: v = 0.5 g0 + g1 in the second.
    text = make_text(8)
    keep: dict[str, Any] = {"batch_size": 1, "bptt_steps": 8, "learning_rate": 0.1}
    first = train(make_plan(momentum=0.5, optimiser_state="kept", **keep), text)

    plan = make_plan(momentum=0.5, optimiser_state="kept", **keep)
    second = LocalTrainer(plan).train(
        PARAMETERS + first.update,
        text,
        round_number=2,
        client_name="device-0001",
        optimiser_state=first.optimiser_state,
    )
    alone = LocalTrainer(make_plan(**keep)).train(
        PARAMETERS + first.update, text, round_number=2, client_name="device-0001"
    )

    assert_close(second.update, alone.update + 0.5 * first.update, rtol=1e-4, atol=1e-6)


def test_the_update_is_clipped_to_the_norm_over_all_layers() -> None:
    free = train(make_plan()).update

    clipped = train(make_plan(privacy=NoNoise(clipping_norm=0.01))).update

    assert float(free.norm()) > 0.01
    assert_close(clipped, free * (0.01 / free.norm()), rtol=1e-4, atol=1e-9)


def test_the_clients_half_of_the_noise_is_added_after_clipping() -> None:
    free = train(make_plan(privacy=NoNoise(clipping_norm=0.01))).update

    noised = train(
        make_plan(privacy=PaperNoise(clipping_norm=0.01, randomisation_magnitude=0.5))
    ).update

    # 392 draws: the standard deviation of their own is 0.5 / sqrt(784) = 0.018; six of them.
    assert float((noised - free).std()) == pytest.approx(0.5, abs=0.11)


def test_clean_norms_follow_the_update_where_attention_scores_them() -> None:
    privacy = PaperNoise(randomisation_magnitude=0.5, score="clean")
    free = train(make_plan()).update

    sent = train(make_plan(privacy=privacy)).update

    schema = schema_of(MODEL)
    assert sent.shape == (schema.element_count + len(schema.tensors),)
    norms = [float(free[where].norm()) for where in schema.slices.values()]
    assert_close(sent[schema.element_count :], torch.tensor(norms), rtol=1e-5, atol=1e-7)


def test_each_tensor_is_clipped_to_its_share_where_the_plan_says_so() -> None:
    free = train(make_plan()).update

    clipped = train(make_plan(privacy=NoNoise(clipping_norm=0.01, clipping="per-layer"))).update

    slices = schema_of(MODEL).slices.values()
    limit = 0.01 / math.sqrt(len(slices))
    for where in slices:
        factor = min(1.0, limit / float(free[where].norm()))
        assert_close(clipped[where], free[where] * factor, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(("clipping_norm", "fitted"), [(0.01, 0.0), (100.0, 1.0)])
def test_a_client_tells_behind_its_update_whether_it_fitted(
    clipping_norm: float, fitted: float
) -> None:
    adaptive = AdaptiveClipping(count_noise_std=0.0)
    plain = train(make_plan(privacy=NoNoise(clipping_norm=clipping_norm))).update

    sent = train(
        make_plan(privacy=NoNoise(clipping_norm=clipping_norm, adaptive_clipping=adaptive))
    ).update

    assert torch.equal(sent[:-1], plain)
    assert float(sent[-1]) == fitted


def test_a_rounds_own_clipping_norm_goes_before_the_plans() -> None:
    privacy = NoNoise(clipping_norm=100.0, adaptive_clipping=AdaptiveClipping(count_noise_std=0.0))
    expected = train(make_plan(privacy=NoNoise(clipping_norm=0.01))).update

    sent = (
        LocalTrainer(make_plan(privacy=privacy))
        .train(
            PARAMETERS,
            make_text(50),
            round_number=1,
            client_name="device-0001",
            clipping_norm=0.01,
        )
        .update
    )

    assert torch.equal(sent[:-1], expected)
    assert float(sent[-1]) == 0.0


def test_training_that_ends_in_nan_is_an_error() -> None:
    with pytest.raises(UnusableUpdateError):
        train(make_plan(learning_rate=1e30, local_epochs=5))


def test_parameters_of_another_model_are_refused() -> None:
    with pytest.raises(ValueError, match="parameters must be float32 of shape"):
        LocalTrainer(make_plan()).train(
            PARAMETERS[:-1], make_text(50), round_number=1, client_name="device-0001"
        )


@pytest.mark.parametrize("hardware", [True, False])
def test_bfloat16_is_used_only_where_the_device_gains(
    monkeypatch: pytest.MonkeyPatch, hardware: bool
) -> None:
    monkeypatch.setattr(edge_client.descent.descent, "gains_from_bfloat16", lambda device: hardware)
    exact = train(make_plan()).update

    update = train(make_plan(precision="bfloat16")).update

    assert torch.equal(update, exact) is not hardware
    assert float((update - exact).norm() / exact.norm()) < 0.05


def test_a_transformer_trains_too() -> None:
    model = TransformerLmSettings(
        vocabulary_size=20, model_size=8, head_count=2, feedforward_size=16, context_size=16
    )
    parameters = initial_parameters(model, seed=1)
    text = torch.tensor([5, 9, 3, 7, 1]).repeat(40)
    plan = make_plan(model=model, optimiser="adam", learning_rate=0.01, local_epochs=10)

    result = LocalTrainer(plan).train(parameters, text, round_number=1, client_name="device-0001")

    assert evaluate_users(plan, parameters + result.update, [text]).perplexity < 3


def test_many_users_count_as_one_after_the_other() -> None:
    plan = make_plan()
    users = [make_text(30, 1), make_text(200, 2)]

    together = evaluate_users(plan, PARAMETERS, users)
    apart = [evaluate_users(plan, PARAMETERS, [user]) for user in users]

    total = apart[0] + apart[1]
    assert together.token_count == total.token_count == 230
    assert together.log_loss_sum == pytest.approx(total.log_loss_sum, rel=1e-6)
    assert math.isfinite(together.perplexity)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.05)])
def test_cuda_ends_near_where_the_processor_ends(precision: str, tolerance: float) -> None:
    plan = make_plan(momentum=0.5, precision=precision, optimiser_state="kept")

    on_cuda = train(plan, device="cuda")

    exact = train(make_plan(momentum=0.5)).update
    assert on_cuda.update.device.type == "cpu"
    assert float((on_cuda.update - exact).norm() / exact.norm()) < tolerance
    counts = evaluate_users(plan, PARAMETERS, [make_text(50)], device="cuda")
    assert counts.token_count == 50


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_round_is_trained_with_its_own_step_size(optimiser: str) -> None:
    decay = LearningRateDecay(last_round=3, final_share=0.25)
    falling = LocalTrainer(make_plan(optimiser=optimiser, decay=decay))

    # The same trainer, as a worker of a simulation has it: 0.5, then a quarter of that.
    for round_number, rate in ((1, 0.5), (3, 0.125), (1, 0.5)):
        named: dict[str, Any] = {"round_number": round_number, "client_name": "device-0001"}
        update = falling.train(PARAMETERS, make_text(50), **named).update
        constant = train(make_plan(optimiser=optimiser, learning_rate=rate), **named).update
        assert torch.equal(update, constant)
