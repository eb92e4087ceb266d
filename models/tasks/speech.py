"""Learn to speak from recordings and their texts.

Clips of about the same length are read side by side, so that little is computed on padding. In
training and scoring every step is fed the true frames before it; `models.listening.synthesis` lets
the voice continue its own.

Counts, so that the figures of many people add up (`models.tasks.metrics.Counts`):

* a *target* is a frame; ``log_loss_sum`` sums each frame's mean absolute difference over the mel
  channels after the post-net, in natural logarithms of amplitude: ``mean_log_loss`` is the mel L1,
  and ``perplexity`` is e to it;
* a *hit* is a frame of a step whose stop logit has the right sign: ``accuracy`` is the stop's
  accuracy, ``top3_hits`` are the same;
* a *sequence* is a clip; an exact match is one that would be ended at its last step and not before.

References:
    [FedDT-TTS] arXiv:2107.08795, section 3.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from models.networks.registry import Network, voice_network
from models.networks.voice import Alignment, Prediction, TransformerTts
from models.plan.plan import TrainingSettings
from models.settings.voice import TransformerTtsSettings
from models.tasks.metrics import Counts
from models.tasks.speech_examples import SpeechBatch, SpeechExamples
from models.tasks.speech_losses import (
    DURATION_WEIGHT,
    duration_loss,
    forward_sum_loss,
    guided_loss,
    mel_loss,
    real_places,
    stop_loss,
)
from models.tasks.unusable_examples import UnusableExamplesError

_LENGTH_JITTER = 0.1


class Speech:
    """Learning from clips; a client may have one."""

    def example_count(self, examples: SpeechExamples) -> int:
        """Return the number of frames."""
        return len(examples.frames)

    def check(self, examples: SpeechExamples, network: Network) -> None:
        """Check that there is a clip, and that all of them fit the network."""
        settings = voice_network(network).settings
        if not len(examples):
            raise UnusableExamplesError("there must be at least 1 clip to train on, got 0")
        _check_clips(examples, settings)

    def batches(
        self,
        examples: SpeechExamples,
        training: TrainingSettings,
        network: Network,
        generator: torch.Generator,
    ) -> Iterator[SpeechBatch]:
        """Yield every clip once, those of about the same length together, in drawn order."""
        for places in self.places(examples, training.batch_size, generator):
            yield SpeechBatch.of(examples, places)

    @staticmethod
    def places(
        examples: SpeechExamples, batch_size: int, generator: torch.Generator
    ) -> Iterator[list[int]]:
        """Yield which clips each of these batches holds.

        Lengths are blurred by a tenth before they are sorted, so that a clip meets others in each
        epoch; batches have near-equal numbers of clips.
        """
        lengths = examples.lengths[:, 0] * (
            1 + _LENGTH_JITTER * torch.rand(len(examples), generator=generator)
        )
        parts = lengths.argsort(stable=True).tensor_split(-(-len(examples) // batch_size))
        for place in torch.randperm(len(parts), generator=generator).tolist():
            yield parts[place].tolist()

    def loss(
        self, network: Network, batch: SpeechBatch, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the loss, the number of frames, and None.

        It is the sum of the mel losses before and after the post-net, in the network's units, the
        stop loss, and with an aligner its forward sum and the durations' loss, without one the
        guided loss times its strength.
        """
        network = voice_network(network)
        settings = network.settings
        batch = batch.to(network.device)
        spoken, right, mask = _predicted(network, batch)
        steps = batch.frame_counts // settings.reduction_factor
        loss = mel_loss(spoken.before, right, mask) + mel_loss(spoken.after, right, mask)
        loss = loss + stop_loss(spoken.stop, steps)
        if spoken.alignment is not None:
            return loss + _alignment_loss(spoken.alignment, batch), batch.frame_count, None
        guided = spoken.attentions[-settings.guided_layer_count :]
        if settings.guide_strength and settings.guided_layer_count and settings.guided_head_count:
            loss = loss + settings.guide_strength * guided_loss(
                guided, steps, batch.text_counts, head_count=settings.guided_head_count
            )
        return loss, batch.frame_count, None

    @torch.no_grad()
    def evaluate(
        self, network: Network, users: Sequence[SpeechExamples], *, batch_size: int = 64
    ) -> Counts:
        """Score every frame of every clip once, given the right ones before it, in float32."""
        network = voice_network(network).eval()
        counts = Counts()
        for user in users:
            _check_clips(user, network.settings)
            order = user.lengths[:, 0].argsort(stable=True).tolist()
            for first in range(0, len(order), batch_size):
                batch = SpeechBatch.of(user, order[first : first + batch_size])
                counts += _count(network, batch.to(network.device))
        return counts


def _predicted(network: TransformerTts, batch: SpeechBatch) -> tuple[Prediction, Tensor, Tensor]:
    """Return the prediction, the true frames in the network's units, and the mask of real ones."""
    mask = real_places(batch.frame_counts, batch.frames.shape[1])
    right = network.normalised(batch.frames)
    return network(batch.texts, right, mask), right, mask


def _alignment_loss(alignment: Alignment, batch: SpeechBatch) -> Tensor:
    weights, found, predicted = alignment
    summed = forward_sum_loss(weights, batch.frame_counts, batch.text_counts)
    return summed + DURATION_WEIGHT * duration_loss(predicted, found, batch.text_counts)


def _count(network: TransformerTts, batch: SpeechBatch) -> Counts:
    factor = network.settings.reduction_factor
    spoken, right, mask = _predicted(network, batch)
    differences = (spoken.after - right).abs().mean(2)[mask].double().sum()
    steps = batch.frame_counts // factor
    is_real = real_places(steps, spoken.stop.shape[1])
    places = torch.arange(spoken.stop.shape[1], device=steps.device)
    is_last = places == steps.unsqueeze(1) - 1
    is_wrong = ((spoken.stop > 0) != is_last) & is_real
    hits = factor * int((is_real & ~is_wrong).sum())
    return Counts(
        token_count=batch.frame_count,
        log_loss_sum=float(differences) * network.settings.mel_std,
        top1_hits=hits,
        top3_hits=hits,
        sequence_count=len(batch),
        exact_matches=int((~is_wrong.any(1)).sum()),
    )


def _check_clips(examples: SpeechExamples, settings: TransformerTtsSettings) -> None:
    frames, lengths = examples.frames, examples.lengths
    if frames.dtype is not torch.float32 or frames.shape[1:] != (settings.mel.mel_count,):
        raise UnusableExamplesError(
            f"frames must be float32 of shape (frames, {settings.mel.mel_count}), got "
            f"{frames.dtype} of shape {tuple(frames.shape)}; make them with the model's settings"
        )
    if not bool(frames.isfinite().all()):
        raise UnusableExamplesError("frames must be finite, got NaN or infinity")
    if lengths.sum(0).tolist() != [len(frames), len(examples.symbols)]:
        raise UnusableExamplesError(
            f"lengths must add up to {len(frames)} frames and {len(examples.symbols)} characters, "
            f"got {lengths.sum(0).tolist()}"
        )
    if len(lengths):
        _check_lengths(lengths, settings)
        _check_symbols(examples.symbols, settings.text.symbol_count)


def _check_lengths(lengths: Tensor, settings: TransformerTtsSettings) -> None:
    factor = settings.reduction_factor
    if int(lengths.min()) < 1:
        raise UnusableExamplesError("every clip must have a frame and a character")
    if bool((lengths[:, 0] % factor).any()):
        raise UnusableExamplesError(
            f"frames of a clip must be whole steps of {factor}; fill the last one up"
        )
    for name, longest, allowed, setting in (
        ("frames", int(lengths[:, 0].max()), settings.longest_steps * factor, "clips.longest_s"),
        ("characters", int(lengths[:, 1].max()), settings.longest_text, "longest_text"),
    ):
        if longest > allowed:
            raise UnusableExamplesError(
                f"a clip must have at most {allowed} {name}, got {longest}; cut it at a pause, or "
                f"raise model.{setting}"
            )


def _check_symbols(symbols: Tensor, symbol_count: int) -> None:
    known = symbols.dtype is torch.int64 and bool(((symbols >= 1) & (symbols < symbol_count)).all())
    if not known:
        raise UnusableExamplesError(
            f"characters must be int64 in [1, {symbol_count}), as the model's alphabet numbers them"
        )
