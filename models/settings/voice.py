"""Settings of the voice that reads text, and the schema they imply. No torch.

References:
    [FedDT-TTS] Hong et al., arXiv:2107.08795, section 3.2: widths, heads, layers.
    [Li] Li et al., "Neural Speech Synthesis with Transformer Network", AAAI 2019, arXiv:1809.08895:
        the pre-nets, the scaled positions, the post-net.
    [ESPnet] its Transformer for speech synthesis: sizes that neither paper gives.
"""

import math
from collections.abc import Iterable
from typing import ClassVar, Literal

from models.settings.audio import ClipSettings, MelSettings
from models.settings.bounds import (
    check_at_least,
    check_below_one,
    check_not_negative,
    check_positive,
)
from models.settings.family import Family
from models.settings.growing_layers import GrowingLayers, LayerStack
from models.text.speech_alphabet import SpeechTextSettings
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import (
    attention_tensors,
    batch_norm_tensors,
    cross_attention_tensors,
    feedforward_tensors,
    linear_tensors,
    norm_tensors,
    stacked,
    tensor,
)

PRENET_CONVOLUTIONS = 3
KERNEL_SIZE = 5

TYPICAL_FRAMES = 6.0
"""Frames that a character lasts where nothing is learnt yet: 70 ms at the usual hop."""

MOST_LOG = 4.0
"""A predicted duration is at most e^4 times as long, or as short."""

PLACE_DEVIATION_FRAMES = 2.0
"""How far attention may be from the middle of a character, with an aligner: a deviation."""

_SIZES = (
    *("hidden_size", "head_count", "layer_count", "feedforward_size", "reduction_factor"),
    *("embedding_size", "text_channels", "mel_prenet_size"),
    *("postnet_channels", "postnet_layer_count", "longest_text"),
)


class TransformerTtsSettings(Family, frozen=True, kw_only=True, tag="transformer_tts"):
    """Transformer that turns characters into a log-mel spectrogram; defaults are [FedDT-TTS]'s.

    Attributes:
        hidden_size: Width of both streams; even, a multiple of ``head_count``.
        head_count: Attention heads in each block.
        layer_count: Blocks of the encoder, and as many of the decoder.
        feedforward_size: Hidden width of each block's feed-forward network.
        reduction_factor: Frames that one step of the decoder makes; r. Each step is fed the last
            frame of the step before.
        embedding_size: Width of a character's embedding.
        text_channels: Channels of the text pre-net's three convolutions.
        mel_prenet_size: Width of the mel pre-net's first two layers.
        postnet_channels: Channels of the post-net's convolutions.
        postnet_layer_count: Convolutions of the post-net.
        norm: Norm after a convolution: ``batch`` as published, over real positions only, or
            ``layer``, which has no running statistics that clients would have to average.
        dropout: Probability in [0, 1) of dropping an element after each sub-layer, in training.
        prenet_dropout: The same in the mel pre-net, which keeps a voice from copying the frame
            before instead of reading on.
        convolution_dropout: The same in the text pre-net and the post-net.
        own_frame_share: Probability in [0, 1] that a training step is fed the network's own output
            for the step before instead of the true frame, so that a voice learns to continue its
            own sound; costs another pass of the decoder. 0 is as published.
        speaker_size: Length of the speaker's vector, which is a client's own and never leaves it; 0
            for one voice.
        longest_text: Longest text in characters.
        aligner_size: Width of what finds, in training, when each character is said; attention is
            drawn there, the voice learns how long it dwells on each, and no step is fed frames. 0
            is as published: attention finds its way alone, each step fed the frame before.
        guided_layer_count: Last blocks of the decoder, at most, whose attention to the text is
            drawn to the diagonal in training, without an aligner.
        guided_head_count: Heads of each of them, at most.
        guide_strength: Weight of that in the loss; 0 for none.
        mel_mean: Subtracted from every log-mel value before the network sees it.
        mel_std: Divides what is left; a loss of 1 is so many natural logarithms.
        text: Characters that are read.
        mel: The spectrogram.
        clips: Which recordings are trained on; their longest length also bounds what is spoken.
    """

    growing: ClassVar[GrowingLayers] = GrowingLayers(
        stacks=(
            LayerStack(name="encoder", setting="layer_count"),
            LayerStack(name="decoder", setting="layer_count"),
        ),
        residual_outputs=("attention.to_out", "cross_attention.to_out", "feedforward.to_out"),
        norms_first=True,
    )

    hidden_size: int = 384
    head_count: int = 4
    layer_count: int = 6
    feedforward_size: int = 1536
    reduction_factor: int = 1
    embedding_size: int = 512
    text_channels: int = 256
    mel_prenet_size: int = 256
    postnet_channels: int = 256
    postnet_layer_count: int = 5
    norm: Literal["batch", "layer"] = "batch"
    dropout: float = 0.1
    prenet_dropout: float = 0.5
    convolution_dropout: float = 0.5
    own_frame_share: float = 0.0
    speaker_size: int = 0
    longest_text: int = 400
    aligner_size: int = 0
    guided_layer_count: int = 2
    guided_head_count: int = 2
    guide_strength: float = 1.0
    mel_mean: float = -5.5
    mel_std: float = 2.0
    text: SpeechTextSettings = SpeechTextSettings()
    mel: MelSettings = MelSettings()
    clips: ClipSettings = ClipSettings()

    def __post_init__(self) -> None:
        check_at_least(self, 1, *_SIZES)
        check_at_least(self, 0, "speaker_size", "aligner_size")
        check_at_least(self, 0, "guided_layer_count", "guided_head_count")
        if self.hidden_size % self.head_count or self.hidden_size % 2:
            raise ValueError(
                f"hidden_size must be even and a multiple of head_count {self.head_count}, "
                f"got {self.hidden_size}"
            )
        check_below_one(self, "dropout", "prenet_dropout", "convolution_dropout")
        if not 0 <= self.own_frame_share <= 1:
            raise ValueError(f"own_frame_share must be in [0, 1], got {self.own_frame_share}")
        if self.aligner_size and self.own_frame_share:
            raise ValueError(
                "own_frame_share must be 0 with an aligner, whose voice is fed no frames, got "
                f"{self.own_frame_share}"
            )
        check_not_negative(self, "guide_strength")
        if not math.isfinite(self.mel_mean):
            raise ValueError(f"mel_mean must be finite, got {self.mel_mean}")
        check_positive(self, "mel_std")

    @property
    def longest_steps(self) -> int:
        """Return the most steps that the decoder takes: those of the longest clip."""
        samples = int(self.clips.longest_s * self.mel.sample_rate_hz)
        return self.steps_of(1 + samples // self.mel.hop_size)

    def steps_of(self, frame_count: int) -> int:
        """Return the steps that make so many frames, the last one perhaps in part."""
        return -(-frame_count // self.reduction_factor)

    def spoken_steps(self, middles: Iterable[float]) -> int:
        """Return the steps that a text takes a voice with an aligner, at least one.

        ``middles`` are those of its characters, in frames from the start, as the voice predicts
        them: each is as far from its character's end as from the one before.
        """
        end = 0.0
        for middle in middles:
            end = 2 * middle - end
        return max(1, self.steps_of(round(end)))

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return Schema(
            (
                *_text_prenet(self),
                *_speaker(self),
                tensor("encoder_position", "scale", 1),
                *stacked("encoder", self.layer_count, self._encoder),
                *norm_tensors("encoder_norm", self.hidden_size),
                *_alignment(self),
                *([] if self.aligner_size else _mel_prenet(self)),
                tensor("decoder_position", "scale", 1),
                *stacked("decoder", self.layer_count, self._decoder),
                *norm_tensors("decoder_norm", self.hidden_size),
                *linear_tensors(
                    "head.mel", self.reduction_factor * self.mel.mel_count, self.hidden_size
                ),
                *linear_tensors("head.stop", 1, self.hidden_size),
                *_postnet(self),
            )
        )

    def _encoder(self, block: str) -> list[TensorSpec]:
        return [*self._attention(block), *self._feedforward(block)]

    def _decoder(self, block: str) -> list[TensorSpec]:
        across, width = f"{block}.cross_attention", self.hidden_size
        return [
            *self._attention(block),
            *norm_tensors(f"{across}_norm", width),
            *cross_attention_tensors(across, width),
            *self._feedforward(block),
        ]

    def _attention(self, block: str) -> list[TensorSpec]:
        name, width = f"{block}.attention", self.hidden_size
        return [
            *norm_tensors(f"{name}_norm", width),
            *attention_tensors(name, model_size=width, inner_size=width),
        ]

    def _feedforward(self, block: str) -> list[TensorSpec]:
        name, width = f"{block}.feedforward", self.hidden_size
        return [
            *norm_tensors(f"{name}_norm", width),
            *feedforward_tensors(name, width, self.feedforward_size),
        ]


def _text_prenet(settings: TransformerTtsSettings) -> list[TensorSpec]:
    channels = settings.text_channels
    sources = (settings.embedding_size, *(channels,) * (PRENET_CONVOLUTIONS - 1))
    return [
        tensor(
            "text_prenet.embedding", "weight", settings.text.symbol_count, settings.embedding_size
        ),
        *(
            spec
            for place, source in enumerate(sources)
            for spec in _convolution(
                settings, f"text_prenet.convolutions.{place}", source, channels, normed=True
            )
        ),
        *linear_tensors("text_prenet.projection", settings.hidden_size, channels),
    ]


def _speaker(settings: TransformerTtsSettings) -> list[TensorSpec]:
    if not settings.speaker_size:
        return []
    size = settings.speaker_size
    return [
        tensor("speaker", "vector", size),
        tensor("speaker.projection", "weight", settings.hidden_size, size),
    ]


def _alignment(settings: TransformerTtsSettings) -> list[TensorSpec]:
    width = settings.aligner_size
    if not width:
        return []
    return [
        tensor("aligner.embedding", "weight", settings.text.symbol_count, width),
        *_convolution(settings, "aligner.text", width, width, normed=False),
        *_convolution(settings, "aligner.first", settings.mel.mel_count, width, normed=False),
        *_convolution(settings, "aligner.second", width, width, normed=False),
        *linear_tensors("durations.projection", 1, settings.hidden_size),
    ]


def _mel_prenet(settings: TransformerTtsSettings) -> list[TensorSpec]:
    width = settings.mel_prenet_size
    return [
        *linear_tensors("mel_prenet.first", width, settings.mel.mel_count),
        *linear_tensors("mel_prenet.second", width, width),
        *linear_tensors("mel_prenet.projection", settings.hidden_size, width),
    ]


def _postnet(settings: TransformerTtsSettings) -> list[TensorSpec]:
    mels, last = settings.mel.mel_count, settings.postnet_layer_count - 1
    widths = (mels, *(settings.postnet_channels,) * last, mels)
    return [
        spec
        for place in range(settings.postnet_layer_count)
        for spec in _convolution(
            settings,
            f"postnet.convolutions.{place}",
            widths[place],
            widths[place + 1],
            normed=place < last,
        )
    ]


def _convolution(
    settings: TransformerTtsSettings, name: str, source: int, channels: int, *, normed: bool
) -> list[TensorSpec]:
    layer = [
        tensor(f"{name}.convolution", "weight", channels, source, KERNEL_SIZE),
        tensor(f"{name}.convolution", "bias", channels),
    ]
    if not normed:
        return layer
    if settings.norm == "batch":
        return [*layer, *batch_norm_tensors(f"{name}.batch_norm", channels)]
    return [*layer, *norm_tensors(f"{name}.layer_norm", channels)]
