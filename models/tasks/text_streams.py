"""Arrange one person's words: streams side by side to train on, segments to score, sentences.

A person's text is one stream of word numbers, sentence after sentence, each ending with ``<eos>``.
Every token is a target exactly once in a pass; the first one is predicted from ``<eos>``, as if a
sentence had just ended.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from models.networks.language_model import LanguageModel
from models.text.vocabulary import EOS

PADDING = -1
"""Target of a place that holds no token: it is neither trained on nor scored."""

SEGMENT_TOKENS = 512
"""Longest text scored with one carried state, in tokens."""

_WINDOW_TOKENS = 64  # Scored at a time, so that memory does not grow with a segment.


@dataclass(frozen=True)
class Window:
    """The next tokens of streams that lie side by side.

    Attributes:
        inputs: Tokens read, int64, shape ``(batch, time)``.
        targets: Tokens that follow them, or ``PADDING``, int64, shape ``(batch, time)``.
        starts_text: Whether no text came before, so that no state may be carried in.
    """

    inputs: Tensor
    targets: Tensor
    starts_text: bool


def training_windows(
    stream: Tensor, *, batch_size: int, window_tokens: int, generator: torch.Generator
) -> Iterator[Window]:
    """Cut a stream into pieces of near-equal length, side by side, and yield them in windows.

    The pass starts at a random place and wraps around, so that pieces and windows are cut elsewhere
    in every pass. A text too short for ``batch_size`` pieces of two tokens gets fewer. The last
    window may have fewer than ``window_tokens`` columns.
    """
    tokens = len(stream)
    pieces = min(batch_size, tokens // 2)
    start = int(torch.randint(tokens, (1,), generator=generator))
    targets, before = stream.roll(-start), _tokens_before(stream).roll(-start)
    edges = torch.tensor([tokens * piece // pieces for piece in range(pieces + 1)])
    table = _table(edges[:-1], edges[1:])
    for first in range(0, table.shape[1], window_tokens):
        places = table[:, first : first + window_tokens]
        yield _window(before, targets, places, starts_text=first == 0)


def sentence_edges(stream: Tensor, longest: int) -> Tensor:
    """Return where each sentence begins and ends: the examples of example-level privacy.

    A sentence of more than ``longest`` tokens is several examples, cut from its own start. So an
    example depends on its sentence alone, whatever else the person typed or deleted.

    Returns:
        First and last-plus-one place, int64, shape ``(examples, 2)``.
    """
    ends = (torch.nonzero(stream == EOS).squeeze(1) + 1).tolist()
    if not ends or ends[-1] < len(stream):
        ends.append(len(stream))
    edges = [
        (first, min(first + longest, end))
        for start, end in pairwise([0, *ends])
        for first in range(start, end, longest)
    ]
    return torch.tensor(edges, dtype=torch.int64).view(-1, 2)


def sentence_window(stream: Tensor, edges: Tensor) -> Window:
    """Return examples side by side, each read from ``<eos>`` on, as if nothing came before.

    ``edges`` are rows of ``sentence_edges``, at least one.
    """
    table = _table(*edges.unbind(1))
    window = _window(_tokens_before(stream), stream, table, starts_text=True)
    window.inputs[:, 0] = EOS
    return window


def scored_features(
    network: LanguageModel, streams: Sequence[Tensor], *, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Read every stream from its start and yield the features before each token, each token once.

    A stream is read in segments that end with a sentence where one ends in reach, so that many of
    them run side by side; which tokens share a segment depends on the text alone, never on the
    batch size. The network is in evaluation mode.

    Yields:
        Features, shape ``(tokens, embed)``, and the places of the tokens that they predict in the
        concatenation of all streams, int64, shape ``(tokens,)``.
    """
    device = network.output_bias.device
    longest = min(SEGMENT_TOKENS, network.context_size or SEGMENT_TOKENS)
    text = torch.cat([*streams])
    before = torch.cat([_tokens_before(stream) for stream in streams])
    edges = sorted(_segments(streams, longest), key=lambda edge: edge[0] - edge[1])
    for first in range(0, len(edges), batch_size):
        starts, ends = torch.tensor(edges[first : first + batch_size]).unbind(1)
        table = _table(starts, ends)
        state: Tensor | None = None
        # A network with a bounded context carries nothing, and a segment is one call.
        width = _WINDOW_TOKENS if network.context_size is None else longest
        for column in range(0, table.shape[1], width):
            places = table[:, column : column + width]
            window = _window(before, text, places, starts_text=column == 0)
            features, state = network.features(window.inputs.to(device), state)
            used = places >= 0
            yield features[used.to(device)], places[used]


def _tokens_before(stream: Tensor) -> Tensor:
    return torch.cat([torch.tensor([EOS]), stream[:-1]])


def _table(starts: Tensor, ends: Tensor) -> Tensor:
    """Return the places of each range in a row of its own, padded at the end."""
    width = int((ends - starts).max())
    places = starts.unsqueeze(1) + torch.arange(width)
    return places.masked_fill_(places >= ends.unsqueeze(1), PADDING)


def _window(before: Tensor, targets: Tensor, places: Tensor, *, starts_text: bool) -> Window:
    padded = places < 0
    at = places.clamp(min=0)
    return Window(before[at], targets[at].masked_fill_(padded, PADDING), starts_text)


def _segments(streams: Sequence[Tensor], longest: int) -> Iterator[tuple[int, int]]:
    """Yield first and last-plus-one place of each segment in the concatenated streams."""
    origin = 0
    for stream in streams:
        sentence_ends = (torch.nonzero(stream == EOS).squeeze(1) + 1).tolist()
        start, reached = 0, 0
        while start < len(stream):
            end = min(start + longest, len(stream))
            while reached < len(sentence_ends) and sentence_ends[reached] <= end:
                reached += 1
            if end < len(stream) and reached and sentence_ends[reached - 1] > start:
                end = sentence_ends[reached - 1]
            yield origin + start, origin + end
            start = end
        origin += len(stream)
