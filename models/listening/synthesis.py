"""Let a voice speak: one step after another, each from the last frame of the one before.

Keys and values of earlier steps are kept, so every step costs the same, and the result is that of
all steps at once. The post-net, which sees both sides of a frame, runs once at the end.

References:
    [Li] Li et al., AAAI 2019, arXiv:1809.08895.
    [Tacotron2] Shen et al., ICASSP 2018, arXiv:1712.05884: dropout of the pre-net stays on, so that
        a voice does not lean on its own frames more than it learnt to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from models.layers.attention import KeysValues
from models.layers.dropout import use_generator
from models.layers.speech_alignment import middles
from models.networks.voice import Memory, TooLongError, TransformerTts


@dataclass(frozen=True)
class Spoken:
    """One utterance, with its frames and where it stopped.

    Attributes:
        mel: Log-mels after the post-net, float32, shape ``(frames, mel)``.
        attention: Where each step looked in the text, shape ``(blocks, heads, steps, text)``; rows
            add up to 1.
        has_ended: Whether the voice stopped by itself, by its stop or where the durations of its
            characters end; False if it was cut off.
    """

    mel: Tensor
    attention: Tensor
    has_ended: bool


@torch.inference_mode()
def synthesise(
    network: TransformerTts,
    symbols: Tensor,
    *,
    generator: torch.Generator | None = None,
    longest_steps: int | None = None,
) -> Spoken:
    """Make the spectrogram of one text, until the voice stops or has taken the most steps.

    Args:
        network: Left in evaluation mode.
        symbols: Characters, int64, shape ``(text,)``, at least one.
        generator: Draws the mel pre-net's dropout, on the network's device; None switches it off.
            A voice with an aligner has none.
        longest_steps: Steps after which the voice is cut off; None for the settings' most.

    Raises:
        TooLongError: If the text or the steps are more than the network can take.
    """
    most = network.settings.longest_steps if longest_steps is None else longest_steps
    if not len(symbols) or most < 1:
        raise ValueError(
            f"there must be a character and a step, got {len(symbols)} characters and {most} steps"
        )
    if most > network.settings.longest_steps:
        raise TooLongError(
            f"longest_steps must be <= {network.settings.longest_steps}, got {most}; raise "
            "model.clips.longest_s"
        )
    network.eval()
    memory = network.encode(symbols.to(network.device).unsqueeze(0))
    with _drawing(network, generator):
        steps = list(_steps(network, memory, most))
    frames = torch.cat([step.frames for step in steps], dim=1)
    mask = torch.ones(frames.shape[:2], dtype=torch.bool, device=frames.device)
    mel = network.log_mels(network.postnet(frames, mask))
    attention = torch.cat([step.attention for step in steps], dim=2)
    return Spoken(mel[0], attention, steps[-1].is_last)


class _Step(NamedTuple):
    """One step.

    Attributes:
        frames: Normalised log-mels, shape ``(1, reduction factor, mel)``.
        attention: Where it looked, shape ``(blocks, heads, 1, text)``.
        is_last: Whether the voice stops after it.
    """

    frames: Tensor
    attention: Tensor
    is_last: bool


def _steps(network: TransformerTts, memory: Memory, most: int) -> Iterator[_Step]:
    blocks = network.decoder_blocks
    held = [block.cross_attention.keys_values(memory.values) for block in blocks]
    past: list[KeysValues | None] = [None] * len(blocks)
    factor = network.settings.reduction_factor
    spoken = None
    if memory.durations is not None:
        spoken = network.settings.spoken_steps(middles(memory.durations)[0].tolist())
    fed = memory.values.new_zeros(1, 1, network.settings.mel.mel_count)
    for place in range(most):
        values = network.decoder_position(network.entering(fed), place)
        seen, looks = memory.seen(place, 1, factor), []
        for number, block in enumerate(blocks):
            values, past[number], look = block.step(values, held[number], seen, past[number])
            looks.append(look)
        frames, stop = network.made(network.decoder_norm(values))
        fed = frames[:, -1:]
        is_last = float(stop) > 0 if spoken is None else place + 1 == spoken
        yield _Step(frames, torch.cat(looks), is_last)
        if is_last:
            return


@contextmanager
def _drawing(network: TransformerTts, generator: torch.Generator | None) -> Iterator[None]:
    """Let the mel pre-net drop as in training, with these draws; None switches its dropout off."""
    if generator is None or network.mel_prenet is None:
        yield
        return
    network.mel_prenet.train()
    use_generator(network.mel_prenet, generator)
    try:
        yield
    finally:
        network.mel_prenet.eval()
