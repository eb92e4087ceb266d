"""Predict a next word with torch, eagerly: the step that an exported graph is held against.

The bare modules in inference mode, one word and the carried state in, ranked words out: no loop,
no copy and no wrapper that a first attempt would not need.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


class TorchStep:
    """Hold a tied GRU language model ready to predict."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over parameters by state-dict name."""
        self.embedding = tensors["embedding.weight"]
        self.bias = tensors["output.bias"]
        self.gru = nn.GRU(*self.embedding.shape[1:], self.embedding.shape[1], batch_first=True)
        gru = {name: tensor for name, tensor in tensors.items() if name.startswith("gru.")}
        self.gru.load_state_dict({name.removeprefix("gru."): gru[name] for name in gru})

    @torch.inference_mode()
    def __call__(self, tokens: Tensor, state: Tensor | None, k: int) -> tuple[Tensor, ...]:
        """Return log-probabilities ``(1, vocab)``, the k best, their words, and the state.

        Args:
            tokens: Word numbers, int64, shape ``(1, time)``.
            state: Shape ``(1, 1, hidden)``, or None at the beginning.
            k: How many words to rank.
        """
        hidden, state = self.gru(functional.embedding(tokens, self.embedding), state)
        scores = functional.linear(hidden[:, -1], self.embedding, self.bias)
        distribution = torch.log_softmax(scores, dim=-1)
        best, words = distribution.topk(k)
        return distribution, best, words, state
