"""Make every user of a text a client of a character model, tested on its newest fifth.

Where clients measure models on the way, they use the older half of that fifth, and the newer half
is scored at the end. No window crosses a cut, so no scored text was seen in training; [LEAF] leaves
such windows out for the same reason.

References:
    [LEAF] Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, arXiv:1812.01097.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from edge_client.datasets.registry import load_characters
from models.text.alphabet import encode_characters
from simulation.config.data import DataSettings
from simulation.config.simulation import SimulationConfig
from simulation.population.deal_users import PartitionError
from simulation.population.partition_record import PartitionRecord, text_record
from simulation.population.population import Population, PopulationError, client_name

# A stream's first character is no target: one character alone is nothing to score.
_LEAST_SCORED = 2


def build_character_population(config: SimulationConfig, path: Path | None) -> Population:
    """Load the configuration's text and make its users clients.

    Raises:
        DatasetError: If the data set cannot be loaded.
        PartitionError: If there are fewer users than clients.
        PopulationError: If nobody has enough text.
    """
    text, data = load_characters(config.data.dataset, path), config.data
    streams = {
        user: torch.tensor(encode_characters(own), dtype=torch.int64)
        for user, own in text.texts.items()
    }
    # The most active users, as far as they have enough to train on.
    kept = {
        user: parts
        for user in _most_active(streams, data)
        if len((parts := _cut(streams[user]))[0]) >= data.least_tokens
    }
    if not kept:
        raise PopulationError(
            f"no client has {data.least_tokens} characters to train on; lower data.least_tokens"
        )
    owners = {client_name(number): user for number, user in enumerate(sorted(kept), start=1)}
    clients = {name: kept[user][0] for name, user in owners.items()}
    # Each client's own newest text, held out.
    asks = config.evaluation.kind == "devices"
    held_out = {name: _held_out(kept[user][1], asks=asks) for name, user in owners.items()}
    own_valid, own_test = (
        {name: own[place] for name, own in held_out.items() if len(own[place]) >= _LEAST_SCORED}
        for place in (0, 1)
    )
    short = len(streams) - len(kept) if data.client_count is None else 0
    return Population(
        clients=clients,
        own_valid=own_valid,
        own_test=own_test,
        held_out={},
        notes=[*text.notes, *([f"{short} users with little text were left out"] if short else [])],
        partition=text_record(
            PartitionRecord(
                dataset=data.dataset,
                partition=data.partition,
                seed=data.seed,
                unit="characters",
                clients=(),
            ),
            {name: (len(own), len(own_test.get(name, ()))) for name, own in clients.items()},
            owners,
        ),
    )


def _most_active(streams: Mapping[str, Tensor], data: DataSettings) -> list[str]:
    """Return the users to keep: those with most text where only some are asked for."""
    if data.client_count is None:
        return list(streams)
    if len(streams) < data.client_count:
        raise PartitionError(
            f"users must be >= {data.client_count}, one for each client, got {len(streams)}; "
            "lower data.client_count"
        )
    return sorted(streams, key=lambda user: (-len(streams[user]), user))[: data.client_count]


def _cut(stream: Tensor) -> tuple[Tensor, Tensor]:
    cut = len(stream) * 4 // 5
    return stream[:cut], stream[cut:]


def _held_out(rest: Tensor, *, asks: bool) -> tuple[Tensor, Tensor]:
    """Return what a client measures models on, if asked to, and what is scored at the end."""
    cut = len(rest) // 2 if asks else 0
    return rest[:cut], rest[cut:]
