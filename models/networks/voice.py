"""The voice: a Transformer that reads characters and writes a log-mel spectrogram.

Text pre-net, scaled positions and encoder make a memory of the text. Each step of the decoder is
fed the last frame of the step before, and makes ``reduction_factor`` frames and a logit that says
whether they are the last; a post-net corrects the whole. Log-mels are normalised by the settings'
mean and deviation, except where a name says otherwise.

With an aligner (`models.layers.speech_alignment`), which the paper has not, the decoder's attention
is drawn to where each character is said, and no step is fed frames: a voice that knows its place
needs none to find it, and what it makes of its own ones drifts.

References:
    [FedDT-TTS] arXiv:2107.08795, section 2.1 and figure 1.
    [Li] Li et al., "Neural Speech Synthesis with Transformer Network", AAAI 2019, arXiv:1809.08895.
    [Duckworth] Duckworth et al., "Parallel Scheduled Sampling", 2019, arXiv:1906.04331.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.batch_norm import BatchNorm
from models.layers.dropout import Dropout
from models.layers.he_scaling import HeLinear, draw_scaled
from models.layers.positions import sinusoids
from models.layers.speech_alignment import (
    Aligner,
    DurationPredictor,
    likeliest_durations,
    middles,
    place_scores,
)
from models.layers.speech_convolutions import Postnet, TextPrenet
from models.networks.voice_blocks import DecoderBlock, encoder_block
from models.settings.voice import TransformerTtsSettings


class TooLongError(ValueError):
    """Raised when a text or a spectrogram is longer than the network's longest."""


class Memory(NamedTuple):
    """The encoder's output for a batch of texts, as the decoder reads it.

    Attributes:
        values: Shape ``(batch, text, hidden)``.
        mask: False at padding, bool, shape ``(batch, 1, 1, text)``.
        durations: Frames that each character lasts, ``(batch, text)``; None without an aligner.
    """

    values: Tensor
    mask: Tensor
    durations: Tensor | None

    def seen(self, first: int, steps: int, step_frames: int) -> Tensor:
        """Return the mask of these steps, from 0, as the decoder's blocks take it."""
        if self.durations is None:
            return self.mask
        scores = place_scores(middles(self.durations), first, steps, step_frames)
        return scores.masked_fill(~self.mask, -math.inf)


class Alignment(NamedTuple):
    """When the characters of a batch of clips are said.

    Attributes:
        weights: The aligner's logarithms, shape ``(batch, frames, text)``.
        found: Frames of each character on the likeliest path, shape ``(batch, text)``.
        predicted: Frames of each character as a voice without the clip has them.
    """

    weights: Tensor
    found: Tensor
    predicted: Tensor


class Prediction(NamedTuple):
    """The network's prediction for texts and the frames before each step.

    Attributes:
        before: Normalised log-mels as the decoder has them, shape ``(batch, frames, mel)``.
        after: The same after the post-net.
        stop: Logits that a step is the last, shape ``(batch, steps)``.
        attentions: Where each step looks in the text, a block of the decoder an entry, shape
            ``(batch, heads, steps, text)``.
        alignment: When the characters are said; None without an aligner.
    """

    before: Tensor
    after: Tensor
    stop: Tensor
    attentions: tuple[Tensor, ...]
    alignment: Alignment | None


class ScaledPositions(nn.Module):
    """Sinusoids times one learnt number, so that they fit the size of what they are added to.

    Attributes:
        scale: α of [Li] section 3.3, shape ``(1,)``.
        what: Name of a sequence's elements, for an error.
    """

    table: Tensor

    def __init__(self, longest: int, width: int, *, what: str) -> None:
        super().__init__()
        self.what = what
        self.scale = nn.Parameter(torch.empty(1))
        self.register_buffer("table", sinusoids(longest, width), persistent=False)

    def forward(self, values: Tensor, first: int = 0) -> Tensor:
        """Return ``(batch, time, hidden)`` with positions added, or raise ``TooLongError``."""
        end = first + values.shape[1]
        if end > len(self.table):
            raise TooLongError(f"a voice takes at most {len(self.table)} {self.what}, got {end}")
        return values + self.scale * self.table[first:end]


class Speaker(nn.Module):
    """The speaker: a vector of the client's own, and a projection that all share.

    Attributes:
        vector: Zero before the client's first round, shape ``(speaker size,)``.
    """

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(settings.speaker_size))
        self.projection = HeLinear(settings.speaker_size, settings.hidden_size, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        """Return the encoder's input, shape ``(batch, text, hidden)``, in this voice."""
        return values + self.projection(self.vector)  # type: ignore[no-any-return]  # Any


class MelPrenet(nn.Module):
    """Three linear layers that squeeze a frame before the decoder is fed with it."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        width = settings.mel_prenet_size
        self.first = HeLinear(settings.mel.mel_count, width)
        self.second = HeLinear(width, width)
        self.projection = HeLinear(width, settings.hidden_size)
        self.dropout = Dropout(settings.prenet_dropout)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the decoder's input, ``(batch, steps, hidden)``, from ``(batch, steps, mel)``."""
        values = self.dropout(functional.relu(self.first(frames)))
        values = self.dropout(functional.relu(self.second(values)))
        return self.projection(values)  # type: ignore[no-any-return]  # modules return Any


class Head(nn.Module):
    """The output of a step: its frames, and whether it is the last."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        mels = settings.mel.mel_count
        self.mel = HeLinear(settings.hidden_size, settings.reduction_factor * mels)
        self.stop = HeLinear(settings.hidden_size, 1)

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return a step's frames side by side, ``(batch, steps, r * mel)``, and stop logits."""
        return self.mel(values), self.stop(values).squeeze(2)


class TransformerTts(nn.Module):
    """Characters -> encoder -> decoder -> mel and stop -> post-net."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        width, blocks = settings.hidden_size, range(settings.layer_count)
        self.settings = settings
        self.text_prenet = TextPrenet(settings)
        self.speaker = Speaker(settings) if settings.speaker_size else None
        self.encoder_position = ScaledPositions(settings.longest_text, width, what="characters")
        self.encoder = nn.ModuleList(encoder_block(settings) for _ in blocks)
        self.encoder_norm = nn.LayerNorm(width)
        self.aligner = Aligner(settings) if settings.aligner_size else None
        self.durations = DurationPredictor(settings) if settings.aligner_size else None
        self.mel_prenet = None if settings.aligner_size else MelPrenet(settings)
        self.decoder_position = ScaledPositions(settings.longest_steps, width, what="steps")
        self.decoder = nn.ModuleList(DecoderBlock(settings) for _ in blocks)
        self.decoder_norm = nn.LayerNorm(width)
        self.head = Head(settings)
        self.postnet = Postnet(settings)
        self.dropout = Dropout(settings.dropout)

    @property
    def device(self) -> torch.device:
        """Return where the parameters lie."""
        return self.head.stop.weight.device

    @property
    def decoder_blocks(self) -> list[DecoderBlock]:
        """Return the decoder's blocks, the first one first."""
        # Cast: a module list is typed as one of modules of any kind.
        return list(cast("Iterable[DecoderBlock]", self.decoder))

    def forward(self, texts: Tensor, frames: Tensor, frame_mask: Tensor) -> Prediction:
        """Return the prediction from the true frames of all steps before.

        With an aligner, each character is said when it is in these frames.

        Args:
            texts: Characters, padded with 0 at the end, int64, shape ``(batch, text)``.
            frames: Normalised log-mels of whole steps, shape ``(batch, frames, mel)``.
            frame_mask: False at padding, bool, shape ``(batch, frames)``.

        Raises:
            TooLongError: If texts or frames are longer than the settings allow.
        """
        memory = self.encode(texts)
        alignment = self._aligned(memory, texts, frames, frame_mask)
        if alignment is not None:
            memory = memory._replace(durations=alignment.found)
        if self.training and self.settings.own_frame_share:
            frames = self._partly_own(memory, frames)
        values, attentions = self.decode(memory, self.fed(frames))
        before, stop = self.made(values)
        return Prediction(before, self.postnet(before, frame_mask), stop, attentions, alignment)

    def _aligned(
        self, memory: Memory, texts: Tensor, frames: Tensor, frame_mask: Tensor
    ) -> Alignment | None:
        """Return when each character is said in the true frames."""
        if self.aligner is None or memory.durations is None:
            return None
        text_mask = memory.mask[:, 0, 0]
        weights = self.aligner(texts, text_mask, frames, frame_mask)
        found = likeliest_durations(weights.detach(), frame_mask.sum(1), text_mask.sum(1))
        return Alignment(weights, found, memory.durations)

    @torch.no_grad()
    def _partly_own(self, memory: Memory, frames: Tensor) -> Tensor:
        """Replace some steps' frames by the network's own, made from the true ones before them.

        One pass of [Duckworth]: no gradient flows through them.
        """
        values, _ = self.decode(memory, self.fed(frames))
        made, _ = self.made(values)
        share = torch.full(values.shape[:2], self.settings.own_frame_share, device=values.device)
        is_own = share.bernoulli(generator=self.dropout.source()).bool()
        chosen = is_own.repeat_interleave(self.settings.reduction_factor, 1).unsqueeze(2)
        return torch.where(chosen, made, frames)

    def normalised(self, mels: Tensor) -> Tensor:
        """Return log-mels in the network's units, any shape."""
        return (mels - self.settings.mel_mean) / self.settings.mel_std

    def log_mels(self, normalised: Tensor) -> Tensor:
        """Undo ``normalised``."""
        return normalised * self.settings.mel_std + self.settings.mel_mean

    def encode(self, texts: Tensor) -> Memory:
        """Read texts; arguments and errors as for ``forward``."""
        mask = texts != 0
        values = self.text_prenet(texts, mask)
        if self.speaker is not None:
            values = self.speaker(values)
        values = self.dropout(self.encoder_position(values))
        attended = mask[:, None, None, :]
        for block in self.encoder:
            values = block(values, attended)
        values = self.encoder_norm(values)
        durations = None if self.durations is None else self.durations(values, mask)
        return Memory(values, attended, durations)

    def fed(self, frames: Tensor) -> Tensor:
        """Return each step's input, ``(batch, steps, mel)``: zeros, then the last frame before."""
        last = frames[:, self.settings.reduction_factor - 1 :: self.settings.reduction_factor]
        return functional.pad(last[:, :-1], (0, 0, 1, 0))

    def entering(self, fed: Tensor) -> Tensor:
        """Return the decoder's input, ``(batch, steps, hidden)``, without positions; 0 if unfed."""
        if self.mel_prenet is None:
            return fed.new_zeros(*fed.shape[:2], self.settings.hidden_size)
        return self.mel_prenet(fed)  # type: ignore[no-any-return]  # modules return Any

    def decode(self, memory: Memory, fed: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Take all steps at once, causally; arguments from ``encode`` and ``fed``.

        Returns the head's input, shape ``(batch, steps, hidden)``, and where each block looks.
        """
        values = self.dropout(self.decoder_position(self.entering(fed)))
        seen, attentions = memory.seen(0, fed.shape[1], self.settings.reduction_factor), []
        for block in self.decoder_blocks:
            values, attention = block(values, memory.values, seen)
            attentions.append(attention)
        return self.decoder_norm(values), tuple(attentions)

    def made(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return normalised frames, ``(batch, frames, mel)``, and stop logits of decoded values."""
        frames, stop = self.head(values)
        return frames.reshape(len(values), -1, self.settings.mel.mel_count), stop

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw raw weights from N(0, 1); positions scale by 1, vector and durations are 0."""
        draw_scaled(self, generator)
        for module in self.modules():
            match module:
                case BatchNorm():
                    module.initialise()
                case ScaledPositions():
                    module.scale.fill_(1)
                case Speaker():
                    module.vector.zero_()
                case DurationPredictor():
                    module.projection.weight.zero_()
