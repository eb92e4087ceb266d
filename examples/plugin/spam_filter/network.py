"""The filter's network."""

import torch
from torch import Tensor, nn

from models.layers.initialisation import draw_layers
from models.networks.plugin_network import PluginNetwork

from .settings import WordCountSettings


class WordCountNetwork(PluginNetwork):
    """[counts] -> linear -> ReLU -> linear; class 1 is spam."""

    def __init__(self, settings: WordCountSettings) -> None:
        super().__init__()
        self.hidden = nn.Linear(settings.bucket_count, settings.hidden_size)
        self.output = nn.Linear(settings.hidden_size, 2)

    def forward(self, counts: Tensor) -> Tensor:
        """Return log-probabilities, ``(messages, 2)``, of float32 ``(messages, buckets)``."""
        scores: Tensor = self.output(torch.relu(self.hidden(counts)))
        return scores.log_softmax(dim=1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all parameters."""
        draw_layers(self, generator)
