"""Turn a data set into a simulated population: clients with their own text, and held-out text.

Training text is dealt to clients as the configuration says; validation and test text is never
dealt and never trained on. Clients are named as a coordinator names devices, in the order of
their owners' names, so that slots and seeds do not depend on anything else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from typing import assert_never

import torch
from torch import Tensor

from edge_client.datasets.federated_text import FederatedText, Sentence, UserText
from edge_client.datasets.registry import load_dataset
from edge_client.partitions import by_user, dirichlet_shards, group_users, iid_shards, pooled
from models.vocabulary import EOS, Vocabulary, build_vocabulary
from simulation.config import TRAINING_SPLIT, SimulationConfig
from simulation.data_settings import DataSettings

# Held-out text of one user is scored in pieces of about this many tokens, cut between sentences,
# so that several workers share it. The cuts depend on the text alone, so no figure depends on
# the number of workers.
_PIECE_TOKENS = 8192


class PopulationError(ValueError):
    """Raised when a data set cannot make the population that is asked for."""


@dataclass(frozen=True)
class Population:
    """Hold the text of everybody in a simulation.

    Attributes:
        vocabulary: The word list that all text is encoded with.
        clients: Token stream of every client by name, int64, shape ``(time,)``.
        held_out: Token streams by split (``valid``, ``test``) and name; a long text is several
            streams, cut between sentences.
        typed: The test text in words: sentences by user.
        notes: What was left out and why, one line each.
    """

    vocabulary: Vocabulary
    clients: Mapping[str, Tensor]
    held_out: Mapping[str, Mapping[str, Tensor]]
    typed: Sequence[Sequence[Sentence]]
    notes: Sequence[str]

    @property
    def training_tokens(self) -> int:
        """Return the target tokens of one pass over all clients."""
        return sum(len(stream) for stream in self.clients.values())

    def groups(self, split: str) -> list[list[str]]:
        """Return the names of a split's streams in groups, each for one worker."""
        groups: list[list[str]] = []
        room = 0
        for name, stream in self.held_out[split].items():
            if room <= 0:
                groups.append([])
                room = _PIECE_TOKENS
            groups[-1].append(name)
            room -= len(stream)
        return groups


def build_population(config: SimulationConfig, path: Path | None) -> Population:
    """Load the configuration's data set and deal it.

    Args:
        config: Names the data set, the partition and the word list.
        path: Where the data set lies; not needed by the embedded one.

    Raises:
        DatasetError: If the data set cannot be loaded.
        PartitionError: If there is too little text to deal as asked.
        PopulationError: If nobody in it could train.
        VocabularyError: If the word list cannot be loaded.
    """
    text = load_dataset(config.data.dataset, path)
    shards = _deal(text, config.data)
    vocabulary = _vocabulary(config, text.train)
    clients = {
        name: stream
        for name, sentences in shards.items()
        if _is_usable(stream := _stream(vocabulary, sentences), config.data.least_tokens)
    }
    if not clients:
        raise PopulationError(
            f"no client has {config.data.least_tokens} tokens; lower data.least_tokens"
        )
    # Named in order, as a coordinator names devices as they enrol.
    streams = [clients[name] for name in sorted(clients)]
    return Population(
        vocabulary=vocabulary,
        clients={f"device-{number:04}": stream for number, stream in enumerate(streams, start=1)},
        held_out={
            "valid": _pieces(vocabulary, text.valid),
            "test": _pieces(vocabulary, text.test),
        },
        typed=list(text.test.values()),
        notes=text.notes,
    )


def _deal(text: FederatedText, data: DataSettings) -> Mapping[str, list[Sentence]]:
    """Return each client's training sentences, by a name that fixes the clients' order."""
    generator = torch.Generator().manual_seed(data.seed)
    # The settings see to it that only ``users`` comes without a number of clients.
    count = data.client_count or len(text.train)
    if data.partition in {"users", "groups"} and not text.has_users:
        raise PopulationError(
            f"data set {data.dataset} does not say who wrote what; use partition iid or dirichlet"
        )
    match data.partition:
        case "users":
            return by_user(text.train, client_count=data.client_count).clients
        case "groups":
            return group_users(text.train, count).clients
        case "iid":
            return iid_shards(pooled(text.train), count, generator=generator).clients
        case "dirichlet":
            return dirichlet_shards(
                pooled(text.train),
                count,
                concentration=data.concentration or 1.0,
                generator=generator,
            ).clients
        case _:
            assert_never(data.partition)


def _vocabulary(config: SimulationConfig, train: UserText) -> Vocabulary:
    if config.word_list.path != TRAINING_SPLIT:
        return config.word_list.load()
    sentences = (sentence for own in train.values() for sentence in own)
    vocabulary = build_vocabulary(sentences, config.word_list.size)
    if len(vocabulary) != config.word_list.size:
        raise PopulationError(
            f"the training split has {len(vocabulary)} words, but vocabulary.size is "
            f"{config.word_list.size}; lower it, and model.vocabulary_size"
        )
    return vocabulary


def _stream(vocabulary: Vocabulary, sentences: Iterable[Sentence]) -> Tensor:
    return torch.tensor(vocabulary.token_stream(sentences), dtype=torch.int64)


def _is_usable(stream: Tensor, least_tokens: int) -> bool:
    """Return whether a client can train: long enough, with at least one known word."""
    return len(stream) >= least_tokens and bool((stream > EOS).any())


def _pieces(vocabulary: Vocabulary, users: UserText) -> dict[str, Tensor]:
    """Return the text of every user, cut between sentences where it is long."""
    pieces: dict[str, Tensor] = {}
    for user in sorted(users):
        ends = accumulate(len(sentence) + 1 for sentence in users[user])
        piece_of = [(end - 1) // _PIECE_TOKENS for end in ends]
        for number, together in groupby(zip(piece_of, users[user], strict=True), itemgetter(0)):
            sentences = (sentence for _, sentence in together)
            pieces[f"{user}/{number}"] = _stream(vocabulary, sentences)
    return pieces
