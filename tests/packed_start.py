"""Packed files of any parameters, for runs to start from."""

from pathlib import Path

from models.compression.packed_model import PackedDescription, pack, packed_digest, rounded
from models.plan.plan import VocabularySettings
from models.settings.model import ModelSettings, schema_of
from models.vector.codec import FlatVector


def write_packed_start(
    path: Path,
    model: ModelSettings,
    words: VocabularySettings,
    parameters: FlatVector,
    *,
    language: str = "en",
) -> Path:
    """Write a start that was learnt from nothing, and return its path."""
    description = PackedDescription(
        model=model,
        vocabulary=words,
        language=language,
        texts=(),
        epochs=1,
        seed=1,
        parameters_sha256=packed_digest(rounded(schema_of(model), parameters)),
    )
    path.write_bytes(pack(description, parameters))
    return path
