"""Examples of speech: log-mel spectrograms with the characters that are said in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class SpeechClip(NamedTuple):
    """One clip.

    Attributes:
        frames: Log-mels, float32, shape ``(frames, mel)``.
        symbols: Characters as `models.text.speech_alphabet` numbers them, int64, shape ``(text,)``.
    """

    frames: Tensor
    symbols: Tensor


@dataclass(frozen=True)
class SpeechExamples:
    """One person's clips one after the other, so that nothing is stored for padding.

    Attributes:
        frames: Log-mels, natural logarithms, float32, shape ``(frames of all clips, mel)``.
        symbols: Characters, int64, shape ``(characters of all clips,)``.
        lengths: Frames and characters of each clip, int64, shape ``(clips, 2)``.
    """

    frames: Tensor
    symbols: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, clips: Iterable[SpeechClip]) -> Self:
        """Put clips one after the other; raise ``ValueError`` if there is none."""
        listed = list(clips)
        if not listed:
            raise ValueError("there must be at least 1 clip, got 0")
        lengths = [[len(clip.frames), len(clip.symbols)] for clip in listed]
        return cls(
            torch.cat([clip.frames for clip in listed]),
            torch.cat([clip.symbols for clip in listed]),
            torch.tensor(lengths, dtype=torch.int64),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, part: slice) -> "SpeechExamples":
        """Return these clips; raise ``ValueError`` if there is none."""
        return SpeechExamples.of(self.clip(place) for place in range(len(self))[part])

    def at_most(self, frame_count: int) -> "SpeechExamples":
        """Return the first clips that together have no more frames than that, at least one."""
        lasting = [self.clip(0)]
        frames_left = frame_count - len(lasting[0].frames)
        for place in range(1, len(self)):
            frames_left -= int(self.lengths[place, 0])
            if frames_left < 0:
                break
            lasting.append(self.clip(place))
        return SpeechExamples.of(lasting)

    def clip(self, place: int) -> SpeechClip:
        """Return one clip."""
        frames, symbols = self._spans[place]
        return SpeechClip(self.frames[frames], self.symbols[symbols])

    @cached_property
    def _spans(self) -> list[tuple[slice, slice]]:
        columns = (self.lengths[:, column].tolist() for column in range(2))
        frames, symbols = (
            [slice(*edge) for edge in pairwise(accumulate(column, initial=0))] for column in columns
        )
        return list(zip(frames, symbols, strict=True))


@dataclass(frozen=True)
class SpeechBatch:
    """Some clips side by side, each padded with zeros at its end.

    Attributes:
        texts: Characters, int64, shape ``(batch, text)``.
        frames: Log-mels, float32, shape ``(batch, frames, mel)``.
        text_counts: Characters of each clip, int64, shape ``(batch,)``.
        frame_counts: Frames of each clip, int64, shape ``(batch,)``.
    """

    texts: Tensor
    frames: Tensor
    text_counts: Tensor
    frame_counts: Tensor

    @classmethod
    def of(cls, examples: SpeechExamples, places: Sequence[int]) -> Self:
        """Take these clips, at least one, out of a person's."""
        clips = [examples.clip(place) for place in places]
        lengths = examples.lengths[list(places)]
        return cls(
            pad_sequence([clip.symbols for clip in clips], batch_first=True),
            pad_sequence([clip.frames for clip in clips], batch_first=True),
            lengths[:, 1],
            lengths[:, 0],
        )

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def frame_count(self) -> int:
        """Return the real frames of all clips."""
        return int(self.frame_counts.sum())

    def to(self, device: torch.device) -> "SpeechBatch":
        """Return the batch on a device."""
        return SpeechBatch(
            self.texts.to(device),
            self.frames.to(device),
            self.text_counts.to(device),
            self.frame_counts.to(device),
        )
