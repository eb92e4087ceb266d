"""Predict the next word of a person's text: the keyboard's task.

Training is truncated back-propagation through time: streams lie side by side, the state is carried
from window to window, and gradients stop at the window's edge. Scoring reads the same streams and
counts every token once, whatever the batch size.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from models.layers.cross_entropy import linear_cross_entropy
from models.networks.registry import Network, WordNetwork, word_network
from models.plan.plan import TrainingSettings
from models.tasks.metrics import Counts
from models.tasks.scoring import score
from models.tasks.text_streams import (
    PADDING,
    Window,
    scored_features,
    training_windows,
)
from models.tasks.unusable_examples import UnusableExamplesError
from models.text.vocabulary import EOS

LEAST_TOKENS = 2


class NextWord:
    """Learning from word streams: int64, shape ``(tokens,)``, each sentence ended by ``<eos>``."""

    def example_count(self, examples: Tensor) -> int:
        """Return the number of target tokens in one pass: every token is a target."""
        return len(examples)

    def check(self, examples: Tensor, network: Network) -> None:
        """Check that a stream holds at least two tokens, one of them a known word."""
        _check_stream(examples, word_network(network))
        if len(examples) < LEAST_TOKENS:
            raise UnusableExamplesError(
                f"text must have at least {LEAST_TOKENS} tokens to train on, got {len(examples)}"
            )
        if int(examples.max()) <= EOS:
            raise UnusableExamplesError("text must hold at least one word of the vocabulary")

    def batches(
        self,
        examples: Tensor,
        training: TrainingSettings,
        network: Network,
        generator: torch.Generator,
    ) -> Iterator[Window]:
        """Yield windows of ``bptt_steps`` tokens, or of the network's shorter context."""
        longest = word_network(network).context_size or training.bptt_steps
        return training_windows(
            examples,
            batch_size=training.batch_size,
            window_tokens=min(training.bptt_steps, longest),
            generator=generator,
        )

    def loss(
        self, network: Network, batch: Window, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean cross-entropy of a window in nats, its tokens, and the state."""
        network = word_network(network)
        device = network.output_bias.device
        features, state = network.features(
            batch.inputs.to(device), None if batch.starts_text else state
        )
        used = torch.nonzero(batch.targets.flatten() != PADDING).squeeze(1)
        targets = batch.targets.flatten()[used].to(device)
        features = features.flatten(0, 1)
        if len(used) < len(features):
            features = features[used.to(device)]
        loss = linear_cross_entropy(features, network.output_weight, network.output_bias, targets)
        return loss, len(targets), None if state is None else state.detach()

    @torch.no_grad()
    def evaluate(
        self, network: Network, users: Sequence[Tensor], *, batch_size: int = 64
    ) -> Counts:
        """Score every token of every stream once, each stream from ``<eos>`` on, in float32."""
        network = word_network(network).eval()
        counts = Counts()
        streams = [stream for stream in users if len(stream)]
        if not streams:
            return counts
        for stream in streams:
            _check_stream(stream, network)
        text = torch.cat(streams)
        for features, places in scored_features(network, streams, batch_size=batch_size):
            counts += score(network, features, text[places].to(features.device))
        return counts


def _check_stream(stream: Tensor, network: WordNetwork) -> None:
    if stream.ndim != 1 or stream.dtype is not torch.int64:
        raise ValueError(
            f"text must be int64 of shape (tokens,), got {stream.dtype} of "
            f"shape {tuple(stream.shape)}"
        )
    vocab = len(network.output_bias)
    if len(stream) and (int(stream.min()) < 0 or int(stream.max()) >= vocab):
        raise UnusableExamplesError(
            f"word numbers must be in [0, {vocab}); encode the text with the plan's vocabulary"
        )
