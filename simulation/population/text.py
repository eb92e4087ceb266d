"""Deal a text data set to clients who type words, and hold out what is scored.

With ``split = "held-out"`` the data set's own validation and test text is never dealt; with
``"by-user-time"`` each client's newest fifth is its own test text. Where clients measure models on
the way, they use the older half of it, and only the newer half is test text.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from edge_client.datasets.registry import load_by_user_time, load_dataset
from edge_client.datasets.text_set import FederatedText, Sentence, UserText
from models.text.languages import is_unparted, letters_told, open_words
from models.text.vocabulary import EOS, Vocabulary, build_vocabulary
from simulation.config.data import DataSettings
from simulation.config.simulation import TRAINING_SPLIT, SimulationConfig
from simulation.population.deal_users import (
    by_user,
    dirichlet_shards,
    group_users,
    iid_shards,
    pooled,
)
from simulation.population.partition_record import PartitionRecord, text_record
from simulation.population.population import (
    PIECE_SIZE,
    PopulationError,
    TextPopulation,
    client_name,
)


def build_text_population(config: SimulationConfig, path: Path | None) -> TextPopulation:
    """Load the configuration's data set and deal it; the embedded set needs no path.

    Raises:
        DatasetError: If the data set cannot be loaded.
        PartitionError: If there is too little text to deal as asked.
        PopulationError: If nobody in it could train.
        VocabularyError: If the word list cannot be loaded.
    """
    is_own = config.data.split == "by-user-time"
    text = (load_by_user_time if is_own else load_dataset)(config.data.dataset, path)
    shards = _deal(text, config.data)
    vocabulary = _vocabulary(config, text.train)
    streams = {owner: _stream(vocabulary, sentences) for owner, sentences in shards.items()}
    # Clients with enough text, named in the order of their owners.
    least = config.data.least_tokens
    owners = sorted(owner for owner, stream in streams.items() if _is_usable(stream, least))
    if not owners:
        _tell_unusable(shards, streams, least)
    names = {owner: client_name(number) for number, owner in enumerate(owners, start=1)}
    clients = {names[owner]: streams[owner] for owner in owners}
    # The text that each client keeps out of training.
    asked, scored = _own_parts(config, text)
    own_valid = {name: own for owner, name in names.items() if (own := asked.get(owner))}
    own_typed = {name: own for owner, name in names.items() if (own := scored.get(owner))}
    own_test = _streams(vocabulary, own_typed)
    return TextPopulation(
        vocabulary=vocabulary,
        clients=clients,
        own_valid=_streams(vocabulary, own_valid),
        own_test=own_test,
        own_typed=own_typed,
        own_older={names[owner]: shards[owner] for owner in owners} if is_own else {},
        held_out={
            "valid": {} if is_own else _pieces(vocabulary, text.valid),
            "test": {} if is_own else _pieces(vocabulary, text.test),
        },
        typed=list(own_typed.values() if is_own else text.test.values()),
        notes=text.notes,
        partition=text_record(
            PartitionRecord(
                dataset=config.data.dataset,
                partition=config.data.partition,
                seed=config.data.seed,
                unit="words",
                clients=(),
            ),
            {name: (len(own), len(own_test.get(name, ()))) for name, own in clients.items()},
            {name: owner for owner, name in names.items()},
        ),
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
            raise PopulationError(
                f"data.partition must be one of text, such as users or iid, got {data.partition}"
            )


def _own_parts(config: SimulationConfig, text: FederatedText) -> tuple[UserText, UserText]:
    """Return users' text after the training part: for choosing settings, and for the end."""
    if config.data.split != "by-user-time":
        return {}, {}
    if config.evaluation.kind == "devices":
        return text.valid, text.test
    users = sorted({*text.valid, *text.test})
    return {}, {user: [*text.valid.get(user, ()), *text.test.get(user, ())] for user in users}


def _vocabulary(config: SimulationConfig, train: UserText) -> Vocabulary:
    words = config.word_list
    if words.path != TRAINING_SPLIT:
        return words.load()
    sentences = (sentence for own in train.values() for sentence in own)
    vocabulary = build_vocabulary(sentences, words.size)
    if len(vocabulary) != words.size:
        raise PopulationError(
            f"the training split has {len(vocabulary)} words, but vocabulary.size is "
            f"{words.size}; lower it, and model.vocabulary_size"
        )
    return vocabulary


def _stream(vocabulary: Vocabulary, sentences: Iterable[Sentence]) -> Tensor:
    return torch.tensor(vocabulary.token_stream(sentences), dtype=torch.int64)


def _streams(vocabulary: Vocabulary, typed: Mapping[str, Sequence[Sentence]]) -> dict[str, Tensor]:
    return {name: _stream(vocabulary, sentences) for name, sentences in typed.items()}


def _tell_unusable(
    shards: Mapping[str, list[Sentence]], streams: Mapping[str, Tensor], least: int
) -> NoReturn:
    """Raise PopulationError; it says whether too little text or no known word is the reason."""
    sentences = [sentence for own in shards.values() for sentence in own]
    letters = letters_told(sentences)
    if any((stream > EOS).any() for stream in streams.values()):
        raise PopulationError(
            f"no client has {least} tokens; lower data.least_tokens; the letters of the text are "
            f"{letters}"
        )
    remedy = (
        "sotto reads what stands between blanks, so it cannot learn from such text"
        if is_unparted(open_words(sentences))
        else 'give [vocabulary] a list of its language, or path = "training-split" and no name'
    )
    raise PopulationError(
        f"no client's text has a word of the word list: its letters are {letters}; {remedy}"
    )


def _is_usable(stream: Tensor, least_tokens: int) -> bool:
    """Return whether a client can train: long enough, with at least one known word."""
    return len(stream) >= least_tokens and bool((stream > EOS).any())


def _pieces(vocabulary: Vocabulary, users: UserText) -> dict[str, Tensor]:
    """Return the text of every user, cut between sentences where it is long."""
    pieces: dict[str, Tensor] = {}
    for user in sorted(users):
        ends = accumulate(len(sentence) + 1 for sentence in users[user])
        piece_of = [(end - 1) // PIECE_SIZE for end in ends]
        for number, together in groupby(zip(piece_of, users[user], strict=True), itemgetter(0)):
            sentences = (sentence for _, sentence in together)
            pieces[f"{user}/{number}"] = _stream(vocabulary, sentences)
    return pieces
