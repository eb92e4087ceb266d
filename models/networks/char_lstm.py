"""The stacked LSTM that FedTP's and LEAF's Shakespeare baselines train.

References:
    [LEAF] Caldas et al., 2018, arXiv:1812.01097: embedding 8, two layers of 256.
"""

import math

import torch
from torch import Tensor, nn

from models.networks.character_model import check_fits
from models.settings.character import CharLstmSettings
from models.text.alphabet import ALPHABET


class CharLstm(nn.Module):
    """Embedding -> LSTM layers -> head; every call is a text of its own, from a state of zeros."""

    def __init__(self, settings: CharLstmSettings) -> None:
        super().__init__()
        self.context_size = settings.context_size
        self.embedding = nn.Embedding(len(ALPHABET), settings.embedding_size)
        self.lstm = nn.LSTM(
            settings.embedding_size,
            settings.hidden_size,
            num_layers=settings.layer_count,
            batch_first=True,
        )
        self.head = nn.Linear(settings.hidden_size, len(ALPHABET))

    def features(self, characters: Tensor) -> Tensor:
        """Return the last layer's state after each character, ``(batch, time, hidden)``.

        ``characters`` are int64, ``(batch, time)``, at most ``context_size`` or a ``ValueError``.
        """
        check_fits(characters, self.context_size)
        states, _ = self.lstm(self.embedding(characters))
        return states  # type: ignore[no-any-return]  # modules return Any

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw characters from N(0, 1), all else from U(-1/sqrt(h), 1/sqrt(h)) as the framework."""
        self.embedding.weight.normal_(generator=generator)
        bound = 1 / math.sqrt(self.lstm.hidden_size)
        for parameter in (*self.lstm.parameters(), *self.head.parameters()):
            parameter.uniform_(-bound, bound, generator=generator)
