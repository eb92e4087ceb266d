from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.networks.registry import build_network
from models.settings.model import GruLmSettings, TransformerLmSettings, WordModelSettings
from models.tasks.text_streams import PADDING, SEGMENT_TOKENS, scored_features, training_windows
from models.text.vocabulary import EOS

GRU = GruLmSettings(vocabulary_size=50, hidden_size=2)
TRANSFORMER = TransformerLmSettings(
    vocabulary_size=50, model_size=2, head_count=1, layer_count=1, context_size=7
)


def distinct(tokens: int) -> Tensor:
    """Number the places of a text from 100, so that each token says where it stood."""
    return torch.arange(100, 100 + tokens)


@settings(deadline=None)
@given(
    tokens=st.integers(2, 200),
    batch_size=st.integers(1, 30),
    window_tokens=st.integers(1, 40),
    seed=st.integers(0, 100),
)
def test_a_pass_trains_on_every_token_once_behind_the_one_before_it(
    tokens: int, batch_size: int, window_tokens: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)

    windows = list(
        training_windows(
            distinct(tokens),
            batch_size=batch_size,
            window_tokens=window_tokens,
            generator=generator,
        )
    )

    pairs = [
        (int(before), int(target))
        for window in windows
        for before, target in zip(window.inputs.flatten(), window.targets.flatten(), strict=True)
        if target != PADDING
    ]
    assert Counter(target for _, target in pairs) == Counter(range(100, 100 + tokens))
    assert all(before == (EOS if target == 100 else target - 1) for before, target in pairs)
    assert all(window.inputs.shape[0] == min(batch_size, tokens // 2) for window in windows)
    assert all(window.inputs.shape[1] <= window_tokens for window in windows)
    assert [window.starts_text for window in windows] == [True] + [False] * (len(windows) - 1)


def test_streams_run_on_from_window_to_window() -> None:
    windows = list(
        training_windows(distinct(60), batch_size=4, window_tokens=5, generator=torch.Generator())
    )

    rows = torch.cat([window.targets for window in windows], dim=1)
    # Fifteen tokens a row, each one after the other, but for the place where the pass wraps.
    steps = (rows[:, 1:] - rows[:, :-1]).flatten()
    assert rows.shape == (4, 15)
    assert int((steps != 1).sum()) <= 1


def test_passes_cut_the_text_at_different_places() -> None:
    generator = torch.Generator().manual_seed(0)

    first, second = (
        next(
            iter(
                training_windows(distinct(100), batch_size=2, window_tokens=9, generator=generator)
            )
        )
        for _ in range(2)
    )

    assert not torch.equal(first.targets, second.targets)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    batch_size=st.integers(1, 9),
    model=st.sampled_from([GRU, TRANSFORMER]),
)
def test_scoring_reads_every_place_once(
    lengths: list[int], batch_size: int, model: WordModelSettings
) -> None:
    network = build_network(model).eval()
    streams = [torch.randint(50, (length,)) for length in lengths]

    with torch.no_grad():
        read = list(scored_features(network, streams, batch_size=batch_size))

    places = torch.cat([places for _, places in read])
    assert sorted(places.tolist()) == list(range(sum(lengths)))
    assert sum(len(features) for features, _ in read) == sum(lengths)


@pytest.mark.parametrize("sentence", [7, 3 * SEGMENT_TOKENS])
def test_segments_end_with_a_sentence_where_one_ends_in_reach(sentence: int) -> None:
    stream = torch.full((3 * SEGMENT_TOKENS,), 5)
    stream[sentence - 1 :: sentence] = EOS
    network = build_network(GRU).eval()

    # One segment at a time: where the state starts anew, the window is a text's first.
    with torch.no_grad():
        read = [places for _, places in scored_features(network, [stream], batch_size=1)]

    places = torch.cat(read).tolist()
    assert sorted(places) == list(range(len(stream)))
    if sentence == 7:
        # 512 tokens hold 73 whole sentences of seven: the first segment ends at 511.
        assert 511 in [int(part[0]) for part in read]
    else:
        assert SEGMENT_TOKENS in [int(part[0]) for part in read]
