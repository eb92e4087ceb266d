"""The task: is a message spam to the person who got it?"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from models.networks.registry import Network
from models.plan.plan import TrainingSettings
from models.tasks.metrics import Counts
from models.tasks.rows import Rows, drawn_batches
from models.tasks.scoring import count_hits
from models.tasks.unusable_examples import UnusableExamplesError

from .made_up import everybody
from .messages import counted, read_messages
from .network import WordCountNetwork
from .settings import WordCountSettings


class Spam:
    """Learning which messages people call spam; a row is a message."""

    def read(self, path: Path, settings: WordCountSettings) -> Rows:
        """Read one person's messages, JSON lines, oldest first."""
        return counted(read_messages(path), settings.bucket_count)

    def people(
        self, dataset: str, path: Path | None, settings: WordCountSettings
    ) -> Mapping[str, Rows]:
        """Read ``made-up``, or a ``folder`` with a file of messages for each person."""
        if dataset == "made-up":
            found = everybody()
        elif dataset == "folder" and path is not None:
            found = {file.stem: read_messages(file) for file in sorted(path.glob("*.jsonl"))}
        else:
            raise ValueError("it must be made-up, or folder with --data FOLDER")
        return {person: counted(own, settings.bucket_count) for person, own in found.items()}

    def figures(self, counts: Counts) -> Mapping[str, float]:
        """Return the share of messages that the filter gets wrong."""
        return {"wrong_share": 1 - counts.accuracy}

    def example_count(self, examples: Rows) -> int:
        """Return the number of messages."""
        return len(examples)

    def check(self, examples: Rows, network: Network) -> None:
        """Check that there is a message, and that it is counted in the network's buckets."""
        counts, _ = examples.tensors
        buckets = _filter(network).hidden.in_features
        if not len(examples) or counts.shape[1] != buckets:
            raise UnusableExamplesError(
                f"there must be a message, counted in {buckets} buckets; got {len(examples)}"
            )

    def batches(
        self,
        examples: Rows,
        training: TrainingSettings,
        network: Network,
        generator: torch.Generator,
    ) -> Iterator[Rows]:
        """Yield every message once in a drawn order."""
        return drawn_batches(examples, training, generator)

    def loss(
        self, network: Network, batch: Rows, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean loss in nats, the number of messages, and None."""
        counts, labels = _on(network, batch)
        return functional.nll_loss(_filter(network)(counts), labels), len(batch), None

    @torch.no_grad()
    def evaluate(self, network: Network, users: Sequence[Rows], *, batch_size: int) -> Counts:
        """Count what the filter gets right."""
        network.eval()
        total = Counts()
        for user in users:
            for first in range(0, len(user), batch_size):
                counts, labels = _on(network, user[first : first + batch_size])
                total += count_hits(_filter(network)(counts), labels)
        return total


SPAM = Spam()


def _filter(network: Network) -> WordCountNetwork:
    if not isinstance(network, WordCountNetwork):
        raise UnusableExamplesError('task "spam" needs model.name = "word_counts"')
    return network


def _on(network: Network, batch: Rows) -> tuple[Tensor, Tensor]:
    device = _filter(network).output.weight.device
    counts, labels = batch.tensors
    return counts.to(device), labels.to(device)
