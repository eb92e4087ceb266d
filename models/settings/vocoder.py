"""Settings of the neural vocoder, and the schema they imply. No torch."""

from models.settings.audio import ClipSettings, MelSettings
from models.settings.bounds import check_at_least
from models.settings.family import Family
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import linear_tensors, norm_tensors, stacked, tensor

KERNEL_SIZE = 7
"""Frames that a convolution sees."""
MEL_CENTRE = -5.0
"""Taken from the log-mels of speech, about [-11.5, 1]: networks learn faster around zero."""
SMALLEST_AMPLITUDE, LARGEST_AMPLITUDE = 1e-3, 100.0
"""Bounds of a frame's amplitudes."""
NORM_EPSILON = 1e-6

_LONGEST_TRANSFORM = 2048


class VocoderSettings(Family, frozen=True, kw_only=True, tag="vocoder"):
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
        check_at_least(self, 1, "width", "hidden_size", "block_count")
        least = max(self.mel.fft_size, _LONGEST_TRANSFORM) // 2
        if self.segment_size % self.mel.hop_size or self.segment_size <= least:
            raise ValueError(
                f"segment_size must be a multiple of hop_size {self.mel.hop_size} and more than "
                f"{least}, half of the longest transform, got {self.segment_size}"
            )

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        width = self.width
        return Schema(
            (
                tensor("embedding", "weight", width, self.mel.mel_count, KERNEL_SIZE),
                tensor("embedding", "bias", width),
                *norm_tensors("embedding_norm", width),
                *stacked("blocks", self.block_count, self._block),
                *norm_tensors("norm", width),
                *linear_tensors("head", 2 * self.mel.bin_count, width),
            )
        )

    def _block(self, block: str) -> list[TensorSpec]:
        """List one block in state-dict order: a module's own parameters before its layers'."""
        return [
            tensor(block, "scale", self.width),
            tensor(f"{block}.over_time", "weight", self.width, 1, KERNEL_SIZE),
            tensor(f"{block}.over_time", "bias", self.width),
            *norm_tensors(f"{block}.norm", self.width),
            *linear_tensors(f"{block}.widen", self.hidden_size, self.width),
            *linear_tensors(f"{block}.narrow", self.width, self.hidden_size),
        ]
