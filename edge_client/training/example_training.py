"""Train with privacy for each example: DP-SGD over one person's sentences.

Every step throws a secret coin for each sentence, clips the gradient of each one drawn, adds noise
to their sum, and divides by the plan's ``batch_size``: a constant, as the number drawn, or the
number there are, would tell what the noise hides. A step that draws none is noise alone.

References:
    [DP-SGD] Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, arXiv:1607.00133,
        algorithm 1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edge_client.descent.optimisers import Optimiser
from models.example_level.clipped_sums import ExampleGradients
from models.networks.registry import WordNetwork
from models.plan.plan import TrainingSettings
from models.tasks.text_streams import Window, sentence_edges, sentence_window
from models.vector.schema import Schema
from privacy.example_level.sampling import poisson_sample
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.secure_gaussian import Draw, NoiseKeys, add_gaussian, calibrate

_LOGITS = 1 << 24
"""Scores of words held at a time: 64 MiB of float32; a larger batch is summed in parts."""


@dataclass(frozen=True)
class SecretDraws:
    """The keys of one client's round, which ``label`` names."""

    keys: NoiseKeys
    label: str

    def key(self, step: int, purpose: str) -> bytes:
        """Return the key of one draw in one step."""
        return self.keys.draw(f"{self.label} step {step} {purpose}")


class ExampleTraining:
    """Training of one network on the sentences of one person after another."""

    def __init__(
        self,
        network: WordNetwork,
        schema: Schema,
        training: TrainingSettings,
        privacy: ExamplePrivacySettings,
    ) -> None:
        """Take a network whose every tensor is in the schema.

        Raises:
            ValueError: If one of its layers has no gradients for each example.
        """
        self._network = network
        self._schema = schema
        self._training = training
        self._privacy = privacy
        self._gradients = ExampleGradients(network)
        self._calibration = calibrate(
            noise_multiplier=privacy.noise_multiplier,
            sensitivity=privacy.clipping_norm,
            element_count=schema.element_count,
        )

    @property
    def example_count(self) -> int:
        """Return the target tokens of a pass as others are told: the same for every client."""
        examples = round(self._training.batch_size / self._privacy.sampling_rate)
        return examples * self._training.bptt_steps

    def descend(self, optimiser: Optimiser, stream: Tensor, draws: SecretDraws) -> float:
        """Run a round on int64 ``(tokens,)``; return the mean loss in nats, NaN if none drawn."""
        self._network.train()
        longest = self._network.context_size or self._training.bptt_steps
        edges = sentence_edges(stream, min(longest, self._training.bptt_steps))
        sums = torch.zeros(self._schema.element_count, device=self._network.output_bias.device)
        loss_sum, drawn_count = 0.0, 0
        for step in range(self._privacy.step_count(self._training.local_epochs)):
            drawn = poisson_sample(
                len(edges), self._privacy.sampling_rate, draws.key(step, "coins")
            )
            loss_sum += self._sum_clipped(stream, edges[torch.from_numpy(drawn)], sums.zero_())
            drawn_count += len(drawn)
            self._step(optimiser, sums, draws.key(step, "noise"))
        return loss_sum / drawn_count if drawn_count else math.nan

    def _sum_clipped(self, stream: Tensor, edges: Tensor, sums: Tensor) -> float:
        """Add the clipped gradients of the examples; returns the sum of their losses."""
        by_name = self._by_name(sums)
        return sum(
            float(self._gradients.add_clipped(window, self._privacy.clipping_norm, by_name).sum())
            for window in self._windows(stream, edges)
        )

    def _step(self, optimiser: Optimiser, sums: Tensor, key: bytes) -> None:
        noised = add_gaussian(sums.cpu(), self._calibration, [Draw(key)]).to(sums.device)
        gradients = self._by_name(noised.div_(self._training.batch_size))
        for name, parameter in self._network.named_parameters():
            parameter.grad = gradients[name]
        optimiser.step()

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        slices = self._schema.slices
        return {
            spec.name: flat[slices[spec.name]].view(spec.shape) for spec in self._schema.tensors
        }

    def _windows(self, stream: Tensor, edges: Tensor) -> Iterator[Window]:
        """Lay the examples side by side, alike in length, as many as memory allows."""
        lengths = edges[:, 1] - edges[:, 0]
        edges = edges[lengths.argsort(stable=True)]
        vocab = len(self._network.output_bias)
        end = len(edges)
        while end > 0:
            widest = int(edges[end - 1, 1] - edges[end - 1, 0])
            start = max(0, end - max(1, _LOGITS // (widest * vocab)))
            yield sentence_window(stream, edges[start:end])
            end = start
