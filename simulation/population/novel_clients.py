"""Keep some clients out of training, to see later how well a finished model serves newcomers.

They follow from the seed of the deal, so all methods get the same ones; the others stay as dealt.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section IV-B.3: a fifth of the clients.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from simulation.config.data import DataSettings
from simulation.population.population import (
    NovelClient,
    Population,
    PopulationError,
    TextPopulation,
)

T = TypeVar("T")


def keep_novel_out(population: Population, data: DataSettings) -> Population:
    """Return the population with ``data.novel_share`` of its clients moved to ``novel``.

    Raises:
        PopulationError: If nobody would be left to train, or a novel client could not be scored.
    """
    if not data.novel_share:
        return population
    novel = novel_names(list(population.clients), data)
    unscored = [name for name in novel if name not in population.own_test]
    if unscored:
        raise PopulationError(
            f"novel clients must hold out examples to be scored on, {', '.join(unscored)} hold "
            'none; use images, sequences, characters or split = "by-user-time"'
        )
    return _without(population, novel)


def novel_names(names: Sequence[str], data: DataSettings) -> list[str]:
    """Return which clients are kept out of training, by name; ``names`` are in the deal's order.

    Raises:
        PopulationError: If nobody would be left to train.
    """
    if not data.novel_share:
        return []
    count = max(1, round(data.novel_share * len(names)))
    if count >= len(names):
        raise PopulationError(
            f"data.novel_share {data.novel_share:g} must leave a client to train, got {count} "
            f"novel ones of {len(names)}"
        )
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(data.seed))
    return sorted(names[place] for place in order[:count].tolist())


def _without(population: Population, novel: Collection[str]) -> Population:
    left = replace(
        population,
        clients=_others(population.clients, novel),
        own_valid=_others(population.own_valid, novel),
        own_test=_others(population.own_test, novel),
        novel={
            name: NovelClient(population.clients[name], population.own_test[name]) for name in novel
        },
        notes=(
            *population.notes,
            f"{len(novel)} of {len(population.clients)} clients are novel: nothing is trained on "
            "them",
        ),
    )
    if not isinstance(left, TextPopulation):
        return left
    own_typed = _others(left.own_typed, novel)
    # What was typed is either theirs or, where they hold nothing out, other people's.
    typed = list(own_typed.values()) if left.own_typed else left.typed
    return replace(left, own_typed=own_typed, typed=typed)


def _others(examples: Mapping[str, T], novel: Collection[str]) -> dict[str, T]:
    return {name: own for name, own in examples.items() if name not in novel}
