"""Inputs and outputs of the graphs of a voice, and which graph holds which tensor.

``encoder.onnx`` reads a text once. Input: ``characters``, int64, shape ``(batch, text)``, padded
with 0 at the end. Outputs, which every step of the decoder reads: ``mask``, 0 or minus infinity at
padding, shape ``(batch, 1, 1, text)``, and for block N of the decoder ``memory_keys.N``, shape
``(batch, heads, head size, text)``, and ``memory_values.N``, shape ``(batch, heads, text, head
size)``. A voice with an aligner also has ``middles``, where the middle of each character is
predicted, in frames from the start, shape ``(batch, text)``; a text's last one says how long it is.
Its decoder takes neither ``frame`` nor ``kept``.

``decoder.onnx`` takes one step. Inputs: all of the above; ``frame``, the last frame of the step
before, normalised (zeros at first), shape ``(batch, mel)``; ``kept``, the factors of the mel
pre-net's two dropouts (ones for none), shape ``(2, batch, pre-net width)``; and its own past,
``keys.N`` and ``values.N``, shape ``(batch, heads, past, head size)``, ``past`` 0 at first.
Outputs: ``frames``, normalised, shape ``(batch, frames of a step, mel)``; ``stop``, the logit that
they are the last, shape ``(batch,)``; ``next_keys.N`` and ``next_values.N``.

``postnet.onnx``: ``frames`` of the whole, shape ``(batch, frames, mel)``, to ``log_mels``, natural
logarithms, of the same shape. ``vocoder.onnx``: ``log_mels`` to ``sound``, shape ``(batch, (frames
- 1) * hop size)``; its metadata ``context_frames`` is how many frames to either side influence a
sample.

All is float32 but the characters; every named axis is free; ``personal.<name>`` is a tensor that is
one person's own, as in `export.faces.words`.
"""

import re

ENCODER_FILE = "encoder.onnx"
DECODER_FILE = "decoder.onnx"
POSTNET_FILE = "postnet.onnx"
VOCODER_FILE = "vocoder.onnx"
VOICE_FILES = (ENCODER_FILE, DECODER_FILE, POSTNET_FILE)

CHARACTERS = "characters"
MASK = "mask"
MIDDLES = "middles"
MEMORY_KEYS, MEMORY_VALUES = "memory_keys.", "memory_values."
FRAME = "frame"
KEPT = "kept"
KEYS, VALUES = "keys.", "values."
FRAMES = "frames"
STOP = "stop"
LOG_MELS = "log_mels"
SOUND = "sound"
CONTEXT_FRAMES = "context_frames"

TEXT = "text"
PAST = "past"

_READ_ONCE = re.compile(r"decoder\.\d+\.cross_attention\.(to_k|to_v)\.weight")
_ENCODER_PARTS = (
    *("text_prenet", "speaker", "encoder_position", "encoder", "encoder_norm"),
    # The aligner only trains; its weights are kept, as a bundle holds all that was released.
    *("aligner", "durations"),
)


def file_of(tensor: str) -> str:
    """Return the graph's file that holds a tensor of the voice, by its state-dict name."""
    part = tensor.partition(".")[0]
    # Keys and values of the text are the same in every step, so the encoder makes them.
    if part in _ENCODER_PARTS or _READ_ONCE.fullmatch(tensor):
        return ENCODER_FILE
    return POSTNET_FILE if part == "postnet" else DECODER_FILE
