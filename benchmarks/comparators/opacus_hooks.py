"""Take steps of DP-SGD as Opacus documents it: hooks that hold a gradient for each example.

The same model from the parts that Opacus knows (its own ``DPGRU``; the output layer shares the
embedding's matrix, which the hooks add up rightly), the same clipping and as much noise.
"""

import time
import warnings

import torch
from opacus.grad_sample import GradSampleModule
from opacus.layers import DPGRU
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn


class TiedDpGru(nn.Module):
    """Embedding, Opacus' GRU, and an output layer that shares the embedding's matrix."""

    def __init__(self, vocabulary_size: int, hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, hidden_size)
        self.gru = DPGRU(hidden_size, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size, vocabulary_size)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits, shape ``(batch, time, vocab)``."""
        hidden, _ = self.gru(self.embedding(tokens))
        logits: Tensor = self.output(hidden)
        return logits


def train_with_hooks(
    initial: dict[str, Tensor],
    inputs: Tensor,
    targets: Tensor,
    *,
    step_count: int,
    learning_rate: float,
    clipping_norm: float,
    noise_multiplier: float,
) -> tuple[float, float]:
    """Take steps over one batch; return their processor seconds and their mean loss in nats.

    Args:
        initial: Parameters by the names of ``nn.GRU`` and ``TiedDpGru``.
        inputs: Int64, shape ``(batch, time)``.
        targets: Next tokens, of the same shape.
        step_count: Steps.
        learning_rate: Step size of plain SGD.
        clipping_norm: Largest norm of one example's gradient.
        noise_multiplier: Noise standard deviation over ``clipping_norm``.
    """
    model = TiedDpGru(*initial["embedding.weight"].shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial[name])
    watched = GradSampleModule(model)
    optimiser = DPOptimizer(
        torch.optim.SGD(watched.parameters(), lr=learning_rate),
        noise_multiplier=noise_multiplier,
        max_grad_norm=clipping_norm,
        expected_batch_size=len(inputs),
    )
    criterion = nn.CrossEntropyLoss()
    losses = []
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # word numbers have no gradient, as torch remarks
        for _ in range(step_count):
            optimiser.zero_grad()
            loss = criterion(watched(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
    return time.process_time() - started, sum(losses) / len(losses)
