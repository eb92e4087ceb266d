"""Deal a data set to simulated clients: at random, by user, by groups of users, or unevenly.

Every sentence goes to at most one client, and a generator state fixes the deal.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108, section V: 100 equal random shards.
    Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
        Classification", 2019, arXiv:1909.06335: Dirichlet-distributed clients.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from edge_client.datasets.text_set import Sentence, UserText


class PartitionError(ValueError):
    """Raised when there is too little text to deal as asked."""


@dataclass(frozen=True)
class Partition:
    """Each client's sentences, with names that sort in a fixed order, and the count left over."""

    clients: Mapping[str, list[Sentence]]
    dropped_sentences: int


def pooled(users: UserText) -> list[Sentence]:
    """Return everybody's sentences, users in the order of their names."""
    return [sentence for user in sorted(users) for sentence in users[user]]


def iid_shards(
    sentences: Sequence[Sentence], client_count: int, *, generator: torch.Generator
) -> Partition:
    """Shuffle, cut into equal shards and drop the rest ([FedAtt] section V).

    Raises:
        PartitionError: If there are fewer sentences than clients.
    """
    _check_enough(len(sentences), client_count, "sentences")
    share = len(sentences) // client_count
    return _cut(sentences, [share] * client_count, generator)


def dirichlet_shards(
    sentences: Sequence[Sentence],
    client_count: int,
    *,
    concentration: float,
    generator: torch.Generator,
) -> Partition:
    """Shuffle and cut into shards whose sizes follow a symmetric Dirichlet; drop nothing.

    Each client gets one sentence and a share of the rest; a small α leaves nearly all to a few
    clients, a large one deals evenly.

    Raises:
        PartitionError: If there are fewer sentences than clients.
        ValueError: If ``concentration`` α is not positive and finite.
    """
    if not 0 < concentration < math.inf:
        raise ValueError(f"concentration must be > 0 and finite, got {concentration}")
    _check_enough(len(sentences), client_count, "sentences")
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    shares = np.random.default_rng(seed).dirichlet([concentration] * client_count)
    # Rounding the running total, not each share, makes the sizes add up.
    ends = np.rint(np.cumsum(shares) * (len(sentences) - client_count)).astype(int)
    ends[-1] = len(sentences) - client_count
    sizes = np.diff(ends, prepend=0) + 1
    return _cut(sentences, sizes.tolist(), generator)


def by_user(
    users: UserText, *, least_sentences: int = 1, client_count: int | None = None
) -> Partition:
    """Make each user with at least ``least_sentences`` a client.

    With ``client_count``, only so many are kept, those with most words first.

    Raises:
        PartitionError: If no user, or fewer than ``client_count``, are left.
    """
    kept = [user for user in users if len(users[user]) >= least_sentences]
    _check_enough(len(kept), client_count or 1, f"users with {least_sentences} sentences")
    kept.sort(key=lambda user: (-_word_count(users[user]), user))
    clients = {user: list(users[user]) for user in sorted(kept[:client_count])}
    return Partition(clients, _size(users) - _size(clients))


def group_users(users: UserText, client_count: int) -> Partition:
    """Deal whole users to fewer clients, so that each client differs from the others.

    The user with most words goes first, each to the client with fewest words so far.

    Raises:
        PartitionError: If there are fewer users than clients.
    """
    _check_enough(len(users), client_count, "users")
    groups: list[list[Sentence]] = [[] for _ in range(client_count)]
    word_counts = [0] * client_count
    for user in sorted(users, key=lambda user: (-_word_count(users[user]), user)):
        smallest = word_counts.index(min(word_counts))
        groups[smallest].extend(users[user])
        word_counts[smallest] += _word_count(users[user])
    return Partition({_name(number): group for number, group in enumerate(groups)}, 0)


def _cut(
    sentences: Sequence[Sentence], sizes: Sequence[int], generator: torch.Generator
) -> Partition:
    order = iter(torch.randperm(len(sentences), generator=generator).tolist())
    clients = {
        _name(number): [sentences[next(order)] for _ in range(size)]
        for number, size in enumerate(sizes)
    }
    return Partition(clients, len(sentences) - sum(sizes))


def _name(number: int) -> str:
    return f"client-{number:06}"


def _word_count(sentences: Sequence[Sentence]) -> int:
    return sum(len(sentence) for sentence in sentences)


def _size(users: UserText) -> int:
    return sum(len(sentences) for sentences in users.values())


def _check_enough(available: int, client_count: int, what: str) -> None:
    if client_count < 1:
        raise ValueError(f"client_count must be >= 1, got {client_count}")
    if available < client_count:
        raise PartitionError(
            f"{what} must be >= {client_count}, one for each client, got {available}; "
            "lower data.client_count"
        )
