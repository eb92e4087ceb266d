"""Settings of the neural vocoder, and the schema they imply. No torch."""

import msgspec

from models.settings.audio import ClipSettings, MelSettings
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import check_at_least, linear_tensors, norm_tensors, tensor

KERNEL_SIZE = 7
"""Frames that a convolution sees."""
MEL_CENTRE = -5.0
"""Taken from the log-mels of speech, about [-11.5, 1]: networks learn faster around zero."""
SMALLEST_AMPLITUDE, LARGEST_AMPLITUDE = 1e-3, 100.0
"""What the amplitudes of a frame are kept between."""
NORM_EPSILON = 1e-6

_LONGEST_TRANSFORM = 2048


class VocoderSettings(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="family",
    tag="vocoder",
):
    """ConvNeXt blocks over mel frames, then amplitudes and phases: 2.4 million parameters.

    Attributes:
        mel: How sound becomes the spectrogram that is read, and the transform that is written.
        width: Channels of the residual stream.
        hidden_size: Channels inside a block.
        block_count: ConvNeXt blocks.
        segment_size: Samples that training sees at once; a multiple of ``mel.hop_size``, more than
            half of the longest transform, that of the loss (2,048) or ``mel.fft_size``.
        clips: Which recordings are trained on.
    """

    mel: MelSettings = MelSettings()
    width: int = 256
    hidden_size: int = 768
    block_count: int = 5
    segment_size: int = 8192
    clips: ClipSettings = ClipSettings()

    def __post_init__(self) -> None:
        for name in ("width", "hidden_size", "block_count"):
            check_at_least(name, getattr(self, name), 1)
        least = max(self.mel.fft_size, _LONGEST_TRANSFORM) // 2
        if self.segment_size % self.mel.hop_size or self.segment_size <= least:
            raise ValueError(
                f"segment_size must be a multiple of hop_size {self.mel.hop_size} and more than "
                f"{least}, half of the longest transform, got {self.segment_size}"
            )

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return _vocoder_schema(self)


def _vocoder_schema(settings: VocoderSettings) -> Schema:
    width = settings.width
    blocks = [
        spec
        for block in range(settings.block_count)
        for spec in _block_tensors(f"blocks.{block}", width, settings.hidden_size)
    ]
    return Schema(
        (
            tensor("embedding", "weight", width, settings.mel.mel_count, KERNEL_SIZE),
            tensor("embedding", "bias", width),
            *norm_tensors("embedding_norm", width),
            *blocks,
            *norm_tensors("norm", width),
            *linear_tensors("head", 2 * settings.mel.bin_count, width),
        )
    )


def _block_tensors(block: str, width: int, hidden: int) -> list[TensorSpec]:
    """List one block in state-dict order: a module's own parameters come before its layers'."""
    return [
        tensor(block, "scale", width),
        tensor(f"{block}.over_time", "weight", width, 1, KERNEL_SIZE),
        tensor(f"{block}.over_time", "bias", width),
        *norm_tensors(f"{block}.norm", width),
        *linear_tensors(f"{block}.widen", hidden, width),
        *linear_tensors(f"{block}.narrow", width, hidden),
    ]
