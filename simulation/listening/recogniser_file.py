"""Keep a trained recogniser in a safetensors file, never mistaken for one of other clips."""

from pathlib import Path

import msgspec
import torch

from models.listening.recogniser import RecogniserSettings, SpeechRecogniser
from models.vector.tensor_file import TensorFileError, decode_tensors, encode_tensors
from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.foundation.strict_json import decode_json

_LARGEST_WIDTH = 1 << 16
_SETTINGS, _CORPUS = "settings", "corpus"


class RecogniserFileError(ValueError):
    """Raised when a file is no recogniser, or one of other clips; says what to do."""


def save_recogniser(path: Path, recogniser: SpeechRecogniser, *, corpus: str) -> None:
    """Write a recogniser with the digest of its corpus; the file's folder is made."""
    tensors = {name: tensor.numpy() for name, tensor in recogniser.state_dict().items()}
    described = {
        _SETTINGS: msgspec.json.encode(recogniser.settings).decode(),
        _CORPUS: corpus,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, encode_tensors(tensors, described), mode=READABLE)


def load_recogniser(path: Path, *, corpus: str) -> SpeechRecogniser:
    """Read a recogniser, in evaluation mode, trained on the clips with this digest.

    One of other clips may have met clips that are held out here, or none of these speakers.

    Raises:
        RecogniserFileError: If the file is no recogniser, or of other clips.
    """
    remedy = "give --train-recogniser to train one"
    try:
        tensors, described = decode_tensors(path.read_bytes())
        settings = decode_json(described.get(_SETTINGS, ""), RecogniserSettings)
    except (TensorFileError, msgspec.MsgspecError) as error:
        raise RecogniserFileError(f"{path} is no recogniser: {error}; {remedy}") from None
    if described.get(_CORPUS) != corpus:
        raise RecogniserFileError(
            f"{path} was trained on other clips than those of this corpus; {remedy}"
        )
    if _shapes(settings) != {name: tensor.shape for name, tensor in tensors.items()}:
        raise RecogniserFileError(
            f"{path} has other tensors than a recogniser of its settings; {remedy}"
        )
    recogniser = SpeechRecogniser(settings)
    recogniser.load_state_dict({name: torch.tensor(tensor) for name, tensor in tensors.items()})
    return recogniser.eval()


def _shapes(settings: RecogniserSettings) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of a recogniser's tensors without making them; None for far too large."""
    if max(msgspec.structs.astuple(settings)) > _LARGEST_WIDTH:
        return None
    with torch.device("meta"):
        made = SpeechRecogniser(settings)
    return {name: tuple(tensor.shape) for name, tensor in made.state_dict().items()}
