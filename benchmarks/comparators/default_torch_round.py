"""Train the clients of one round with the loop that anybody would write first in PyTorch.

Float32, torch's default threads, ``nn.GRU``, ``nn.Linear`` and ``CrossEntropyLoss``: the figure
that the simulation's round is held against. The same model, the same initial parameters, the same
streams, batches and optimiser as the measured side.
"""

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class TiedGru(nn.Module):
    """Embedding, GRU, and an output layer that shares the embedding's matrix."""

    def __init__(self, vocabulary_size: int, hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size, vocabulary_size)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return logits ``(batch, time, vocab)`` and the state ``(1, batch, hidden)``."""
        hidden, state = self.gru(self.embedding(tokens), state)
        return self.output(hidden), state


def train_clients(
    initial: dict[str, Tensor],
    batches_of: Sequence[Sequence[tuple[Tensor, Tensor]]],
    *,
    learning_rate: float,
    gradient_clipping_norm: float,
) -> tuple[float, float, Tensor]:
    """Train each client for one epoch from the same start.

    Args:
        initial: State dict of ``TiedGru``.
        batches_of: For each client its windows ``(inputs, targets)``, each ``(batch, time)``.
        learning_rate: Step size of plain SGD.
        gradient_clipping_norm: Largest norm of a gradient step.

    Returns:
        Seconds, mean loss in nats per token over all clients, and the mean client update of the
        embedding, shape ``(vocab, hidden)``.
    """
    vocabulary_size, hidden_size = initial["embedding.weight"].shape
    model = TiedGru(vocabulary_size, hidden_size)
    criterion = nn.CrossEntropyLoss()
    loss_sum, token_count = 0.0, 0
    update = torch.zeros(vocabulary_size, hidden_size)
    started = time.perf_counter()
    for batches in batches_of:
        model.load_state_dict(initial)
        optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
        state = None
        for inputs, targets in batches:
            optimiser.zero_grad()
            logits, state = model(inputs, None if state is None else state.detach())
            loss = criterion(logits.flatten(0, 1), targets.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping_norm)
            optimiser.step()
            loss_sum += loss.item() * targets.numel()
            token_count += targets.numel()
        update += (model.embedding.weight.detach() - initial["embedding.weight"]) / len(batches_of)
    return time.perf_counter() - started, loss_sum / token_count, update
