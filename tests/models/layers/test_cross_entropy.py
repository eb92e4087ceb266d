from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import models.layers.cross_entropy
from models.layers.cross_entropy import linear_cross_entropy, vocabulary_chunks


def operands(tokens: int = 37, vocab: int = 50, embed: int = 8) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(tokens)
    features = torch.randn(tokens, embed, generator=generator)
    weight = torch.randn(vocab, embed, generator=generator)
    bias = torch.randn(vocab, generator=generator)
    targets = torch.randint(vocab, (tokens,), generator=generator)
    return (*(part.requires_grad_() for part in (features, weight, bias)), targets)


def gradients(loss: Tensor, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    # Three times the loss: the gradient that arrives from above must count.
    return torch.autograd.grad(3 * loss, parts)


@pytest.mark.parametrize("chunk_elements", [1, 150, 1 << 22])
@pytest.mark.parametrize("tokens", [1, 2, 37])
def test_loss_and_gradients_equal_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, chunk_elements: int, tokens: int
) -> None:
    monkeypatch.setattr(models.layers.cross_entropy, "CHUNK_ELEMENTS", chunk_elements)
    features, weight, bias, targets = operands(tokens)

    fused = linear_cross_entropy(features, weight, bias, targets)
    plain = cross_entropy(linear(features, weight, bias), targets)

    assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    assert_close(
        gradients(fused, (features, weight, bias)),
        gradients(plain, (features, weight, bias)),
        rtol=1e-5,
        atol=1e-6,
    )


def test_logits_far_apart_do_not_overflow() -> None:
    # The right word has a logit of -1000 and the other of 1000: the loss is their distance.
    features, bias = torch.tensor([[1.0]]), torch.zeros(2)
    weight = torch.tensor([[-1000.0], [1000.0]], requires_grad=True)

    loss = linear_cross_entropy(features, weight, bias, torch.tensor([0]))
    torch.autograd.backward(loss)

    assert float(loss.detach()) == pytest.approx(2000)
    assert_close(weight.grad, torch.tensor([[-1.0], [1.0]]))


def test_one_thread_gives_the_same_bits_every_time() -> None:
    features, weight, bias, targets = operands(200)

    runs = [
        gradients(linear_cross_entropy(features, weight, bias, targets), (features, weight, bias))
        for _ in range(2)
    ]

    assert all(torch.equal(one, two) for one, two in zip(*runs, strict=True))


def test_bfloat16_stays_near_and_returns_float32_gradients() -> None:
    features, weight, bias, targets = operands(200)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused = linear_cross_entropy(features, weight, bias, targets)
    plain = cross_entropy(linear(features, weight, bias), targets)

    assert fused.dtype is torch.float32
    # bfloat16 keeps 8 bits: a factor is off by at most 2^-9 of itself.
    assert_close(fused, plain, rtol=0.01, atol=0)
    for near, exact in zip(
        gradients(fused, (features, weight, bias)),
        gradients(plain, (features, weight, bias)),
        strict=True,
    ):
        assert near.dtype is torch.float32
        assert float((near - exact).norm() / exact.norm()) < 0.02


def test_features_in_bfloat16_get_a_gradient_of_their_type() -> None:
    features, weight, bias, targets = operands()
    low = features.detach().bfloat16().requires_grad_()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(low, weight, bias, targets)
    torch.autograd.backward(loss)

    assert low.grad is not None
    assert low.grad.dtype is torch.bfloat16


def test_without_gradients_the_loss_is_the_same() -> None:
    features, weight, bias, targets = operands()

    with torch.no_grad():
        quiet = linear_cross_entropy(features, weight, bias, targets)

    assert torch.equal(quiet, linear_cross_entropy(features, weight, bias, targets).detach())
    assert not quiet.requires_grad


def test_a_second_backward_pass_is_refused() -> None:
    features, weight, bias, targets = operands()
    loss = linear_cross_entropy(features, weight, bias, targets)
    torch.autograd.backward(loss, retain_graph=True)

    with pytest.raises(RuntimeError, match="one backward pass"):
        torch.autograd.backward(loss)


@pytest.mark.parametrize("tokens", [0, 5])
def test_no_token_or_too_few_targets_are_refused(tokens: int) -> None:
    features, weight, bias, targets = operands(5)

    with pytest.raises(ValueError, match="must fit"):
        linear_cross_entropy(features[:tokens], weight, bias, targets[:-1])


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Watch every operation and remember the largest tensor that one made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.element_count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.element_count = max(self.element_count, made.numel())
        return made


def test_memory_holds_one_chunk_of_logits_and_never_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.layers.cross_entropy, "CHUNK_ELEMENTS", 1_000)
    features, weight, bias, targets = operands(tokens=400, vocab=50)

    with LargestTensor() as fused:
        torch.autograd.backward(linear_cross_entropy(features, weight, bias, targets))
    with LargestTensor() as plain:
        torch.autograd.backward(cross_entropy(linear(features, weight, bias), targets))

    assert plain.element_count == 400 * 50
    # The features are the largest thing left: 400 tokens of width 8.
    assert fused.element_count == 400 * 8


@pytest.mark.parametrize(("tokens", "vocab"), [(1, 3), (419, 10_000), (420, 10_000), (5, 9 << 20)])
def test_chunks_cover_every_token_once(tokens: int, vocab: int) -> None:
    covered = [at for chunk in vocabulary_chunks(tokens, vocab) for at in range(tokens)[chunk]]

    assert covered == list(range(tokens))
