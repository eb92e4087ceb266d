"""Deal clips to simulated clients: in given ratios, or each speaker a client of their own.

Every clip goes to one client, and a generator state fixes the deal.

References:
    [FedDT-TTS] arXiv:2107.08795, section 3: 500 random clips of LJ Speech to test, the rest dealt
        to five equal clients, or to three in ratios such as 1:1:3 and 1:1:8.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

import torch

from edge_client.datasets.speech_set import Clip
from simulation.population.deal_users import PartitionError


@dataclass(frozen=True)
class SpeechPartition:
    """Each client's clips, with names that sort in a fixed order, and the count left over."""

    clients: Mapping[str, tuple[Clip, ...]]
    dropped_clips: int = 0


class HeldOut(NamedTuple):
    """Clips to train on and clips to score, each in the set's order."""

    train: tuple[Clip, ...]
    test: tuple[Clip, ...]


def hold_out(clips: Sequence[Clip], test_count: int, *, generator: torch.Generator) -> HeldOut:
    """Draw clips to be scored and never trained on, from each speaker in proportion to their own.

    A speaker's last clip is never drawn. With one speaker this is the paper's draw.

    Raises:
        PartitionError: If there are too few clips to leave every speaker one.
    """
    counts = Counter(clip.speaker for clip in clips)
    most = sum(counts.values()) - len(counts)
    if not 0 <= test_count <= most:
        raise PartitionError(
            f"test_count must be in [0, {most}], so that each of {len(counts)} speakers keeps a "
            f"clip to train on, got {test_count}"
        )
    sizes = list(counts.values())
    drawable = [size - 1 for size in sizes]
    shares = dict(zip(counts, _shares(sizes, test_count, drawable), strict=True))
    drawn: set[int] = set()
    for place in torch.randperm(len(clips), generator=generator).tolist():
        if shares[clips[place].speaker]:
            shares[clips[place].speaker] -= 1
            drawn.add(place)
    return HeldOut(
        tuple(clip for place, clip in enumerate(clips) if place not in drawn),
        tuple(clip for place, clip in enumerate(clips) if place in drawn),
    )


def by_ratio(
    clips: Sequence[Clip], ratio: Sequence[int], *, generator: torch.Generator
) -> SpeechPartition:
    """Shuffle and cut into clients with sizes in the ratio, such as ``(1, 1, 3)``; drop nothing.

    The remainder goes to the clients that lack most of a clip, so sizes are at most one clip off.

    Raises:
        PartitionError: If a client would get no clip.
        ValueError: If the ratio is empty or a number in it is below 1.
    """
    if not ratio or min(ratio) < 1:
        raise ValueError(f"ratio must be whole numbers >= 1, one a client, got {list(ratio)}")
    sizes = _shares(ratio, len(clips), [len(clips)] * len(ratio))
    if not min(sizes):
        raise PartitionError(
            f"clips must be enough for a client of each part of {':'.join(map(str, ratio))}, got "
            f"{len(clips)}"
        )
    order = iter(torch.randperm(len(clips), generator=generator).tolist())
    return SpeechPartition(
        {
            f"client-{number:06}": tuple(clips[next(order)] for _ in range(size))
            for number, size in enumerate(sizes)
        }
    )


def equal_shards(
    clips: Sequence[Clip], client_count: int, *, generator: torch.Generator
) -> SpeechPartition:
    """Shuffle and cut into clients of the same size, one clip more or less; drop nothing.

    Raises:
        PartitionError: If there are fewer clips than clients.
        ValueError: If ``client_count`` is below 1.
    """
    if client_count < 1:
        raise ValueError(f"client_count must be >= 1, got {client_count}")
    return by_ratio(clips, (1,) * client_count, generator=generator)


def by_speaker(clips: Sequence[Clip], *, least_clips: int = 1) -> SpeechPartition:
    """Make each speaker with at least ``least_clips`` a client, clips in the set's order.

    Raises:
        PartitionError: If no speaker is left.
    """
    clients: dict[str, list[Clip]] = {}
    for clip in clips:
        clients.setdefault(clip.speaker, []).append(clip)
    kept = {
        speaker: tuple(clients[speaker])
        for speaker in sorted(clients)
        if len(clients[speaker]) >= least_clips
    }
    if not kept:
        raise PartitionError(
            f"a speaker must have {least_clips} clips, got none that has; lower least_clips"
        )
    return SpeechPartition(kept, len(clips) - sum(map(len, kept.values())))


def _shares(weights: Sequence[int], total: int, most: Sequence[int]) -> list[int]:
    """Share ``total`` out by weight, none above ``most``, the largest remainders rounded up."""
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    order = sorted(
        range(len(weights)), key=lambda place: (-(total * weights[place] % whole), place)
    )
    places = cycle(order)
    while sum(shares) < total:
        place = next(places)
        if shares[place] < most[place]:
            shares[place] += 1
    return shares
