"""Predict the next character of a person's text: Shakespeare's roles, as federations know them.

Every character but a text's first is a target, once in a pass, whatever the model. Windows are cut
by the text and ``context_size`` alone, so all methods are scored on the same positions with the
same context. In training a window's targets see 1 to ``context_size`` characters. Scoring slides by
half a window and counts only its second half, so a target sees more than half of ``context_size``
and at most all of it, or the whole text before it if that is shorter.

References:
    [LEAF] Caldas et al., 2018, arXiv:1812.01097: 80 letters of context, texts split by time.
    [FedTP] Li et al., arXiv:2211.01572.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from models.networks.registry import CharacterNetwork, Network, character_network
from models.plan.plan import TrainingSettings
from models.tasks.metrics import Counts
from models.tasks.scoring import count_hits
from models.tasks.unusable_examples import UnusableExamplesError
from models.text.alphabet import UNKNOWN

LEAST_CHARACTERS = 2
UNSCORED = -1
"""Target of a place that is neither trained on nor scored."""


@dataclass(frozen=True)
class CharacterWindows:
    """Pieces of text side by side.

    Attributes:
        inputs: Characters read, int64, shape ``(batch, time)``.
        targets: Characters that follow them, or ``UNSCORED``, int64, shape ``(batch, time)``.
    """

    inputs: Tensor
    targets: Tensor


class NextCharacter:
    """Learning from character streams: int64, shape ``(characters,)``, as ``encode_characters``."""

    def example_count(self, examples: Tensor) -> int:
        """Return the number of targets: all characters but the first."""
        return max(len(examples) - 1, 0)

    def check(self, examples: Tensor, network: Network) -> None:
        """Check that a stream holds at least two characters of the alphabet."""
        _check_stream(examples, character_network(network))
        if len(examples) < LEAST_CHARACTERS:
            raise UnusableExamplesError(
                f"text must have at least {LEAST_CHARACTERS} characters to train on, "
                f"got {len(examples)}"
            )

    def batches(
        self,
        examples: Tensor,
        training: TrainingSettings,
        network: Network,
        generator: torch.Generator,
    ) -> Iterator[CharacterWindows]:
        """Yield windows of ``context_size`` characters in a drawn order, cut at a drawn place."""
        context = character_network(network).context_size
        offset = int(torch.randint(context, (1,), generator=generator))
        target_count = len(examples) - 1
        cuts = [0, *range(offset or context, target_count, context), target_count]
        starts, ends = torch.tensor(cuts[:-1]), torch.tensor(cuts[1:])
        order = torch.randperm(len(starts), generator=generator)
        for first in range(0, len(order), training.batch_size):
            rows = order[first : first + training.batch_size]
            yield _windows(examples, starts[rows], ends[rows], starts[rows])

    def loss(
        self, network: Network, batch: CharacterWindows, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean cross-entropy in nats, the number of targets, and None."""
        features, targets = self.features(network, batch)
        logits = character_network(network).head(features)
        return functional.cross_entropy(logits.float(), targets), len(targets), None

    def features(self, network: Network, batch: CharacterWindows) -> tuple[Tensor, Tensor]:
        """See ``FeatureTask``."""
        network = character_network(network)
        device = network.head.weight.device
        used = (batch.targets != UNSCORED).to(device)
        return network.features(batch.inputs.to(device))[used], batch.targets.to(device)[used]

    @torch.no_grad()
    def evaluate(
        self, network: Network, users: Sequence[Tensor], *, batch_size: int = 64
    ) -> Counts:
        """Score every character of every stream but its first, once, in float32."""
        network = character_network(network).eval()
        counts = Counts()
        for stream in users:
            for batch in self.scored_batches(network, stream, batch_size=batch_size):
                features, targets = self.features(network, batch)
                counts += self.count(network.head(features), targets)
        return counts

    def targets(self, examples: Tensor) -> Tensor:
        """Return all characters but the first."""
        return examples[1:]

    def scored_batches(
        self, network: Network, examples: Tensor, *, batch_size: int
    ) -> Iterator[CharacterWindows]:
        """Yield every character but the first once, in order, as a target."""
        network = character_network(network)
        _check_stream(examples, network)
        if len(examples) < LEAST_CHARACTERS:
            return
        starts, ends, firsts = _scored_edges(len(examples) - 1, network.context_size)
        for first in range(0, len(starts), batch_size):
            rows = slice(first, first + batch_size)
            yield _windows(examples, starts[rows], ends[rows], firsts[rows])

    def count(self, logits: Tensor, targets: Tensor) -> Counts:
        """Count hits; a character outside the alphabet is never one."""
        return count_hits(logits, targets, never_given=(UNKNOWN,))


def _scored_edges(target_count: int, context: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return where windows of inputs start and end, and from which place on they are counted."""
    step = max(context // 2, 1)
    windows = 1 + max(-(-(target_count - context) // step), 0)
    starts = torch.arange(windows) * step
    ends = (starts + context).clamp(max=target_count)
    return starts, ends, torch.cat([starts[:1], ends[:-1]])


def _windows(stream: Tensor, starts: Tensor, ends: Tensor, firsts: Tensor) -> CharacterWindows:
    """Put ranges of inputs side by side, padded; targets before ``firsts`` are left out.

    A target is the character after its input. All edges are int64, shape ``(batch,)``.
    """
    places = starts.unsqueeze(1) + torch.arange(int((ends - starts).max()))
    unscored = (places >= ends.unsqueeze(1)) | (places < firsts.unsqueeze(1))
    places = places.clamp(max=len(stream) - 2)
    return CharacterWindows(stream[places], stream[places + 1].masked_fill_(unscored, UNSCORED))


def _check_stream(stream: Tensor, network: CharacterNetwork) -> None:
    size = network.head.out_features
    if stream.ndim != 1 or stream.dtype is not torch.int64:
        raise UnusableExamplesError(
            f"text must be int64 of shape (characters,), got {stream.dtype} of "
            f"shape {tuple(stream.shape)}"
        )
    if len(stream) and not (int(stream.min()) >= 0 and int(stream.max()) < size):
        raise UnusableExamplesError(
            f"character numbers must be in [0, {size}); encode the text with models.characters"
        )
