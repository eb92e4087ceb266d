"""Pack a model and what describes it into one small file, and read one back without trusting it.

A file is a 48-byte header, a description and the tensors in schema order::

    magic "SOTTOPKD" | version, uint32 | bytes of the description, uint32 | SHA-256 of what follows
    description, JSON (``PackedDescription``)
    a tensor of two axes or more: a float32 scale for each index of its first axis, then int8
    any other tensor, such as a bias: float32

All numbers are little-endian. A row's scale s is its largest magnitude divided by 127; a value x is
stored as the whole number nearest to x/s, ties to even, and read as that number times s in float32,
the same everywhere. So a value is off by at most s/2, rounding of float32 aside. A row of zeros has
scale 0. Nothing is drawn at random: a start is rounded once, where the updates of a round are
rounded thousands of times and must be right on average (``block_quantisation``). Sizes follow from
the description's model, and a file of another size is refused before any tensor is looked at. numpy
only: no torch.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from models.plan.bounds import check_elements, check_numbers
from models.plan.plan import VocabularySettings
from models.settings.bounds import check_hex
from models.settings.model import ModelSettings, schema_of
from models.text.languages import check_language_tag
from models.vector.codec import CodecError, FlatVector, PayloadHeader, check_finite, check_flat
from models.vector.schema import Schema, TensorSpec
from privacy.foundation.bounded_files import read_bounded
from privacy.foundation.strict_json import decode_json

LARGEST_PACKED_BYTES = 8 << 20
"""Largest packed file: one that travels in the package must not outweigh the rest of it."""

_LARGEST_DESCRIPTION_BYTES = 64 << 10
_HEADER = PayloadHeader("a packed model", b"SOTTOPKD", 1)
_LEVELS = 127


class PackedModelError(ValueError):
    """Raised when a file is no packed model, or one that is damaged; the text says what differs."""


class PublicText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text that a model was learnt from.

    Attributes:
        name: Data set.
        times: How often an epoch reads it.
        early: Whether only the first half of the epochs did.
        token_count: Words and ends of sentences.
        unknown_words: Share of its words that the word list does not have.
    """

    name: str
    times: int
    early: bool = False
    token_count: int
    unknown_words: float


class PackedDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything known of a packed model beside its tensors.

    Attributes:
        model: Its settings, from which sizes follow.
        vocabulary: The word list of its rows; None for a model without one.
        language: Language of its text, a BCP 47 tag such as ``en``; several have commas between.
        texts: Public text that it was learnt from.
        voices: Voices that it was learnt from, where it speaks.
        epochs: Passes over that text.
        seed: Seed of that training.
        figures: What the tensors as packed make of text that they were not learnt from, by name.
        parameters_sha256: Hex digest of the parameters as they are read back, little-endian
            float32: the digest in the record of a release of them.
    """

    model: ModelSettings
    vocabulary: VocabularySettings | None = None
    language: str
    texts: tuple[PublicText, ...] = ()
    voices: tuple[str, ...] = ()
    epochs: int
    seed: int
    figures: dict[str, float] = {}
    parameters_sha256: str

    def __post_init__(self) -> None:
        check_language(self.language)
        check_hex(self, 64, "parameters_sha256")


@dataclass(frozen=True)
class PackedModel:
    """A packed model as it was read; ``parameters`` are flat float32, shape ``(elements,)``."""

    description: PackedDescription
    parameters: FlatVector


def check_language(tags: str) -> None:
    """Raise ``ValueError`` unless a text is BCP 47 tags of languages, with commas between."""
    for tag in tags.split(","):
        check_language_tag(tag)


def rounded(schema: Schema, parameters: FlatVector) -> FlatVector:
    """Return the parameters, shape ``(elements,)``, as a packed file gives them back.

    Raises:
        CodecError: If they do not fit the schema or are not finite.
    """
    return _read_tensors(schema, memoryview(_tensor_bytes(schema, parameters)))


def packed_digest(parameters: FlatVector) -> str:
    """Return the hex SHA-256 of little-endian float32 bytes, as ``parameters_sha256`` has it."""
    return hashlib.sha256(parameters.astype("<f4", copy=False).tobytes()).hexdigest()


def pack(description: PackedDescription, parameters: FlatVector) -> bytes:
    """Return a packed file of parameters, shape ``(elements,)``, described so.

    Raises:
        CodecError: If the parameters do not fit the description's model or are not finite.
        PackedModelError: If the file would have more than ``LARGEST_PACKED_BYTES``, or the digest
            in the description is not that of the parameters after rounding.
    """
    schema = schema_of(description.model)
    tensors = _tensor_bytes(schema, parameters)
    told = msgspec.json.encode(description, order="deterministic")
    size = _HEADER.SIZE + len(told) + len(tensors)
    if size > LARGEST_PACKED_BYTES:
        raise PackedModelError(
            f"a packed model must have at most {LARGEST_PACKED_BYTES} bytes, this one would have "
            f"{size}; lower its width or the size of its word list"
        )
    if packed_digest(_read_tensors(schema, memoryview(tensors))) != description.parameters_sha256:
        raise PackedModelError("parameters_sha256 must be the digest of the rounded parameters")
    body = told + tensors
    return _HEADER.encode(hashlib.sha256(body).digest(), len(told)) + body


def unpack(packed: bytes) -> PackedModel:
    """Return the model in a packed file.

    Raises:
        PackedModelError: If it is no such file, is cut off or longer, was changed, or describes a
            model that no device would be asked to hold.
    """
    try:
        return _unpacked(memoryview(packed))
    except PackedModelError:
        raise
    # What decoding raises, and settings of a model that break a rule.
    except ValueError as error:
        raise PackedModelError(str(error)) from None


def read_packed(path: Path) -> PackedModel:
    """Read a packed file, of at most ``LARGEST_PACKED_BYTES``; errors name the path.

    Raises:
        PackedModelError: As ``unpack``, and if the file cannot be read.
    """
    try:
        return unpack(read_bounded(path, LARGEST_PACKED_BYTES))
    except OSError as error:
        raise PackedModelError(f"{path} cannot be read: {error.strerror}") from None
    except PackedModelError as error:
        raise PackedModelError(f"{path} is no packed model, or a damaged one: {error}") from None


def _unpacked(packed: memoryview) -> PackedModel:
    if packed.nbytes < _HEADER.SIZE:
        raise PackedModelError(f"it must have at least {_HEADER.SIZE} bytes, got {packed.nbytes}")
    sha256, told = _HEADER.decode(packed)
    body = packed[_HEADER.SIZE :]
    if hashlib.sha256(body).digest() != sha256:
        raise PackedModelError(
            "its content must have the digest in its header; it was cut or changed"
        )
    if told > min(_LARGEST_DESCRIPTION_BYTES, body.nbytes):
        raise PackedModelError(
            f"its description must have at most {_LARGEST_DESCRIPTION_BYTES} bytes, got {told} of "
            f"{body.nbytes}"
        )
    description = decode_json(
        bytes(body[:told]), PackedDescription, at_most=_LARGEST_DESCRIPTION_BYTES
    )
    # Before a schema is made of it: a billion layers would be a list of as many tensors.
    check_numbers(description.model)
    schema = schema_of(description.model)
    check_elements(schema, "its model")
    parameters = _read_tensors(schema, body[told:])
    if packed_digest(parameters) != description.parameters_sha256:
        raise PackedModelError("its parameters must have the digest in its description")
    return PackedModel(description, parameters)


def _tensor_bytes(schema: Schema, parameters: FlatVector) -> bytes:
    check_flat("parameters", schema, parameters)
    check_finite(schema, parameters)
    return b"".join(
        _rounded_rows(spec, parameters[schema.slices[spec.name]])
        if _has_rows(spec)
        else parameters[schema.slices[spec.name]].astype("<f4").tobytes()
        for spec in schema.tensors
    )


def _rounded_rows(spec: TensorSpec, values: FlatVector) -> bytes:
    # float64: a quotient of float32 values could be infinite where a row is tiny.
    rows = values.reshape(spec.shape[0], -1).astype(np.float64)
    scales = (np.abs(rows).max(axis=1) / _LEVELS).astype("<f4")
    divisors = np.where(scales > 0, scales, 1).astype(np.float64)
    numbers = np.clip(np.rint(rows / divisors[:, None]), -_LEVELS, _LEVELS)
    numbers[scales == 0] = 0
    coded: bytes = scales.tobytes() + numbers.astype(np.int8).tobytes()
    return coded


def _read_tensors(schema: Schema, tensors: memoryview) -> FlatVector:
    size = sum(map(_byte_count, schema.tensors))
    if tensors.nbytes != size:
        raise CodecError(f"its tensors must have {size} bytes, got {tensors.nbytes}")
    flat = np.empty(schema.element_count, np.float32)
    start = 0
    for spec in schema.tensors:
        part = tensors[start : start + _byte_count(spec)]
        start += part.nbytes
        into = flat[schema.slices[spec.name]]
        if not _has_rows(spec):
            into[:] = np.frombuffer(part, "<f4")
            continue
        count = spec.shape[0]
        scales = np.frombuffer(part, "<f4", count=count).astype(np.float32)
        numbers = np.frombuffer(part, np.int8, offset=4 * count).reshape(count, -1)
        # A scale that is not finite is refused below, with the name of its tensor.
        with np.errstate(all="ignore"):
            into[:] = np.multiply(numbers, scales[:, None], dtype=np.float32).reshape(-1)
    check_finite(schema, flat)
    return flat


def _byte_count(spec: TensorSpec) -> int:
    if _has_rows(spec):
        return 4 * spec.shape[0] + spec.element_count
    return 4 * spec.element_count


def _has_rows(spec: TensorSpec) -> bool:
    return len(spec.shape) > 1
