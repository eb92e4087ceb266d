from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edge_client.datasets.sound_file import SoundFile
from edge_client.datasets.speech_set import Clip
from simulation.population.deal_speech import by_ratio, by_speaker, equal_shards, hold_out
from simulation.population.deal_users import PartitionError


def clips(*counts: int) -> list[Clip]:
    return [
        Clip(f"{speaker}-{number}", f"speaker-{speaker}", " a.", SoundFile(Path("a.wav")))
        for speaker, count in enumerate(counts)
        for number in range(count)
    ]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.slow
def test_the_papers_clips_are_dealt_as_in_the_paper() -> None:
    # 13,100 clips, 500 to test; five equal clients have 2,520 each, 1:1:3 is 2,520 twice and 7,560.
    train, test = hold_out(clips(13_100), 500, generator=generator())

    equal = equal_shards(train, 5, generator=generator())
    uneven = by_ratio(train, (1, 1, 3), generator=generator())

    assert len(test) == 500
    assert [len(client) for client in equal.clients.values()] == [2520] * 5
    assert [len(client) for client in uneven.clients.values()] == [2520, 2520, 7560]


@pytest.mark.parametrize("last", [3, 5, 6, 8])
def test_what_does_not_divide_is_dealt_too(last: int) -> None:
    sizes = [
        len(client)
        for client in by_ratio(clips(325), (1, 1, last), generator=generator()).clients.values()
    ]

    assert sum(sizes) == 325
    for size, part in zip(sizes, (1, 1, last), strict=True):
        assert abs(size - 325 * part / (2 + last)) < 1


@given(
    count=st.integers(1, 60),
    ratio=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_every_clip_goes_to_one_client_and_the_deal_repeats(
    count: int, ratio: list[int], seed: int
) -> None:
    given_clips = clips(count)
    try:
        partition = by_ratio(given_clips, ratio, generator=generator(seed))
    except PartitionError:
        assert count < sum(ratio)
        return

    dealt = [clip.name for client in partition.clients.values() for clip in client]
    assert sorted(dealt) == sorted(clip.name for clip in given_clips)
    assert list(partition.clients) == sorted(partition.clients)
    assert partition == by_ratio(given_clips, ratio, generator=generator(seed))


@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_each_speaker_gives_their_share_to_test_and_keeps_a_clip(
    counts: list[int], share: float, seed: int
) -> None:
    all_clips = clips(*counts)
    test_count = int(share * (len(all_clips) - len(counts)))

    train, test = hold_out(all_clips, test_count, generator=generator(seed))

    tested = Counter(clip.speaker for clip in test)
    assert len(test) == test_count
    assert {clip.speaker for clip in train} == {clip.speaker for clip in all_clips}
    assert [clip for clip in all_clips if clip in train or clip in test] == all_clips
    for speaker, count in enumerate(counts):
        assert tested[f"speaker-{speaker}"] >= min(count - 1, test_count * count // len(all_clips))


def test_a_voice_with_one_clip_is_trained_on_and_never_tested() -> None:
    train, test = hold_out(clips(1, 9), 8, generator=generator())

    assert [clip.name for clip in train if clip.speaker == "speaker-0"] == ["0-0"]
    assert {clip.speaker for clip in test} == {"speaker-1"}


def test_speakers_are_clients_and_those_with_few_clips_are_left_out() -> None:
    everybody, many = by_speaker(clips(3, 1, 5)), by_speaker(clips(3, 1, 5), least_clips=2)

    assert {name: len(client) for name, client in everybody.clients.items()} == {
        "speaker-0": 3, "speaker-1": 1, "speaker-2": 5,
    }  # fmt: skip
    assert everybody.dropped_clips == 0
    assert list(many.clients) == ["speaker-0", "speaker-2"]
    assert many.dropped_clips == 1


def test_deals_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(PartitionError, match=r"test_count must be in \[0, 8\].*got 9"):
        hold_out(clips(9), 9, generator=generator())
    with pytest.raises(PartitionError, match="1:1:8, got 4"):
        by_ratio(clips(4), (1, 1, 8), generator=generator())
    with pytest.raises(PartitionError, match="lower least_clips"):
        by_speaker(clips(3), least_clips=4)
    with pytest.raises(ValueError, match=r">= 1, one a client, got \[1, 0\]"):
        by_ratio(clips(4), (1, 0), generator=generator())
    with pytest.raises(ValueError, match="client_count must be >= 1, got 0"):
        equal_shards(clips(4), 0, generator=generator())
