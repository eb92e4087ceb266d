"""Learn to make sound from mel spectrograms, from recordings alone; no text is needed.

An example is a segment of sound; its spectrogram is computed when it is read. The objective is
regression alone. A discriminator trained against the vocoder would be a second network, several
times as large, for every federated round to move and average.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from models.networks.registry import Network, vocoder_network
from models.networks.vocoder import Vocoder
from models.plan.plan import TrainingSettings
from models.sound.mel import log_mel
from models.sound.spectral_distance import spectral_distance
from models.tasks.metrics import Counts
from models.tasks.unusable_examples import UnusableExamplesError


def cut_segments(samples: Tensor, segment_size: int) -> Tensor:
    """Cut sound, at least one sample, into ``(segments, segment_size)`` that hold all of it.

    The last segment ends where the sound does, and so overlaps the one before; a sound shorter than
    a segment is followed by silence.
    """
    missing = segment_size - len(samples)
    if missing >= 0:
        return functional.pad(samples, (0, missing)).unsqueeze(0)
    segments = samples.unfold(0, segment_size, segment_size)
    if len(samples) % segment_size:
        segments = torch.cat([segments, samples[-segment_size:].unsqueeze(0)])
    return segments.contiguous()


class Vocoding:
    """Learning from segments of sound, float32 of shape ``(segments, samples)``."""

    def example_count(self, examples: Tensor) -> int:
        """Return the number of segments."""
        return len(examples)

    def check(self, examples: Tensor, network: Network) -> None:
        """Check that there is sound to learn from, in segments of the network's size."""
        network = vocoder_network(network)
        if not len(examples):
            raise UnusableExamplesError("there must be at least 1 segment to train on, got 0")
        _check_segments(examples, network)
        if not bool(examples.any()):
            raise UnusableExamplesError(
                "segments must have sound, got silence alone; record it again or take it out"
            )

    def batches(
        self,
        examples: Tensor,
        training: TrainingSettings,
        network: Network,
        generator: torch.Generator,
    ) -> Iterator[Tensor]:
        """Yield every segment once in a drawn order, in batches of near-equal size."""
        order = torch.randperm(len(examples), generator=generator)
        for places in order.tensor_split(-(-len(examples) // training.batch_size)):
            yield examples[places]

    def loss(
        self, network: Network, batch: Tensor, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean spectral distance, the number of segments, and None."""
        return self._distances(vocoder_network(network), batch).mean(), len(batch), None

    @torch.no_grad()
    def evaluate(
        self, network: Network, users: Sequence[Tensor], *, batch_size: int = 64
    ) -> Counts:
        """Score every segment once, in float32; ``log_loss_sum`` sums their spectral distances."""
        network = vocoder_network(network).eval()
        counts = Counts()
        for user in users:
            _check_segments(user, network)
            for first in range(0, len(user), batch_size):
                batch = user[first : first + batch_size]
                distances = self._distances(network, batch).double()
                counts += Counts(token_count=len(batch), log_loss_sum=float(distances.sum()))
        return counts

    def _distances(self, network: Vocoder, batch: Tensor) -> Tensor:
        """Return how far each segment is from the sound made of its mels, shape ``(segments,)``."""
        settings = network.settings.mel
        right = batch.to(network.head.weight.device)
        # Differences of logarithms are all there is to see: nothing here is rounded to bfloat16.
        with torch.autocast(right.device.type, enabled=False):
            mel = log_mel(right, settings)
        made = network(mel)
        with torch.autocast(right.device.type, enabled=False):
            return spectral_distance(made, right, settings).total


def _check_segments(segments: Tensor, network: Vocoder) -> None:
    size = network.settings.segment_size
    if segments.dtype is not torch.float32 or segments.ndim != 2 or segments.shape[1] != size:
        raise UnusableExamplesError(
            f"segments must be float32 of shape (segments, {size}), got {segments.dtype} of shape "
            f"{tuple(segments.shape)}; cut them with the model's segment_size"
        )
    if not bool(segments.isfinite().all()):
        raise UnusableExamplesError("samples must be finite, got NaN or infinity")
