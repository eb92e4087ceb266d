"""Turn an update into the payload that is sealed, and a payload into an update.

Without compression a payload is what ``models.vector.codec`` writes. With compression it is a
header of 48 bytes, then the values reported behind the update (clean norms, whether it fitted) as
they are, then the coded values::

    magic "SOTTOUPD" | version, uint32 | zero, uint32 | format SHA-256, 32 bytes | told | values

The digest covers schema and settings, so two ends with different plans never misread each other.
The plan fixes the size, or bounds it with entropy coding (`models.compression.entropy`), and the
size is checked before anything is read. Where layers are sent in turn, the digested schema is that
of the round's group: another round's layers are refused like those of another model.
"""

import hashlib
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from models.compression.entropy import (
    check_squeezed,
    largest_squeezed,
    require_zstd,
    squeeze,
    unsqueeze,
)
from models.compression.registry import build_value_coder
from models.compression.value_coder import Draws
from models.plan.plan import Plan, plan_schema, upload_schema
from models.settings.compression import CompressionSettings
from models.settings.layer_groups import layer_groups
from models.vector.codec import (
    CodecError,
    FlatVector,
    Payload,
    PayloadHeader,
    check_digest,
    check_finite,
    check_flat,
    check_layout,
    encode,
    payload_size,
)
from models.vector.schema import BYTES_PER_ELEMENT, SENT, Schema
from privacy.foundation.memory_pool import fresh_memory

FORMAT_VERSION = 1
_HEADER = PayloadHeader("a compressed update", b"SOTTOUPD", FORMAT_VERSION)


class UpdateFormat(Protocol):
    """The format of the updates of one plan's round; a ``CodecError`` refuses others.

    Attributes:
        schema: Tensors of an update, as ``models.plan.plan.upload_schema`` gives them.
        payload_bytes: Size of every payload, or of the largest if it varies.
        least_bytes: Size of the smallest payload: the same if none varies.
    """

    @property
    def schema(self) -> Schema:
        """Return what an update holds."""

    @property
    def payload_bytes(self) -> int:
        """Return the largest payload's size."""

    @property
    def least_bytes(self) -> int:
        """Return the smallest payload's size."""

    def encode(self, update: FlatVector, *, seed: int) -> memoryview:
        """Return the payload of a finite update, float32, ``(elements,)``, in schema order."""

    def check_layout(self, payload: Payload) -> None:
        """Check size, magic, version and format without reading a value."""

    def decode(self, payload: Payload) -> FlatVector:
        """Return the update that a payload holds, float32, ``(elements,)``, perhaps in its memory.

        Values may be NaN or infinite; the reader checks them.
        """


class PlainFormat:
    """A format that sends updates as they are."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.payload_bytes = self.least_bytes = payload_size(schema)

    def encode(self, update: FlatVector, *, seed: int) -> memoryview:
        """See ``UpdateFormat``."""
        return encode(self.schema, update)

    def check_layout(self, payload: Payload) -> None:
        """See ``UpdateFormat``."""
        check_layout(self.schema, payload)

    def decode(self, payload: Payload) -> FlatVector:
        """Return the update without copying it; see ``UpdateFormat``."""
        check_layout(self.schema, payload)
        offset = self.payload_bytes - self.schema.payload_bytes
        return np.frombuffer(payload, dtype="<f4", offset=offset)


class CompressedFormat:
    """A format that sends updates in fewer bytes, all of their tensors or one group of them."""

    def __init__(
        self,
        schema: Schema,
        settings: CompressionSettings,
        *,
        told_count: int,
        group: Schema | None = None,
    ) -> None:
        """Take a plan's settings; the last ``told_count`` elements travel uncompressed.

        Tensors outside the group are not sent and arrive as zeros; None sends all.
        """
        self.schema = schema
        first_told = schema.element_count - told_count
        sent = [
            spec
            for spec in schema.tensors
            if group is None
            or spec in group.tensors
            or schema.slices[spec.name].start >= first_told
        ]
        self._sent = Schema(tuple(sent))
        self._places = None if group is None else [schema.slices[spec.name] for spec in sent]
        self._told_count = told_count
        self._value_count = self._sent.element_count - told_count
        self._coder = build_value_coder(settings)
        self._start = _HEADER.SIZE + told_count * BYTES_PER_ELEMENT
        self._coded_bytes = self._coder.byte_count(self._value_count)
        self._squeezes = settings.entropy == "zstd"
        self.payload_bytes = self.least_bytes = self._start + self._coded_bytes
        if self._squeezes:
            require_zstd()
            self.payload_bytes = self._start + largest_squeezed(self._coded_bytes)
            self.least_bytes = self._start
        described = msgspec.json.encode(settings, order="deterministic")
        self._sha256 = hashlib.sha256(self._sent.sha256 + described).digest()
        self._draws_at_random = not settings.error_feedback

    def encode(self, update: FlatVector, *, seed: int) -> memoryview:
        """See ``UpdateFormat``."""
        check_flat("an update", self.schema, update)
        if self._places is not None:
            update = np.concatenate([update[place] for place in self._places])
        check_finite(self._sent, update)
        payload = fresh_memory(self._start + self._coded_bytes)
        payload[: _HEADER.SIZE] = _HEADER.encode(self._sha256)
        self._told(payload)[:] = update[self._value_count :]
        draws = Draws(seed) if self._draws_at_random else None
        coded = payload[self._start :]
        self._coder.encode(update[: self._value_count], coded, draws)
        if self._squeezes:
            return memoryview(bytes(payload[: self._start]) + squeeze(coded, self._start))
        return payload.toreadonly()

    def check_layout(self, payload: Payload) -> None:
        """See ``UpdateFormat``."""
        view = memoryview(payload)
        if not (view.c_contiguous and self.least_bytes <= view.nbytes <= self.payload_bytes):
            raise CodecError(
                f"payload must be {self.least_bytes} to {self.payload_bytes} contiguous bytes, "
                f"got {view.nbytes}"
            )
        other = "the update belongs to another model or another way of compressing"
        check_digest("format", self._sha256, _HEADER.decode_plain(view), other)
        if self._squeezes:
            check_squeezed(view.cast("B")[self._start :], self._coded_bytes, self._start)

    def decode(self, payload: Payload) -> FlatVector:
        """Return the update in memory of its own; see ``UpdateFormat``."""
        self.check_layout(payload)
        view = memoryview(payload).cast("B")
        update = np.empty(self._sent.element_count, np.float32)
        update[self._value_count :] = self._told(view)
        coded = view[self._start :]
        if self._squeezes:
            coded = unsqueeze(coded, self._coded_bytes, self._start)
        self._coder.decode(coded, update[: self._value_count])
        if self._places is None:
            return update
        whole = np.zeros(self.schema.element_count, np.float32)
        start = 0
        for place in self._places:
            end = start + place.stop - place.start
            whole[place] = update[start:end]
            start = end
        return whole

    def _told(self, payload: memoryview) -> FlatVector:
        return np.frombuffer(payload, "<f4", count=self._told_count, offset=_HEADER.SIZE)


class UpdateFormats:
    """The formats in which the updates of a plan travel, round by round.

    Attributes:
        schema: Tensors of an update, the same in every round.
        payload_bytes: Size of the largest payload of any round.
        least_bytes: Size of the smallest payload of any round.
    """

    def __init__(self, formats: Sequence[UpdateFormat]) -> None:
        """Take the formats that rounds use in turn: at least one, all of one schema."""
        self.schema = formats[0].schema
        self.payload_bytes = max(one.payload_bytes for one in formats)
        self.least_bytes = min(one.least_bytes for one in formats)
        self._formats = formats

    def of_round(self, round_number: int) -> UpdateFormat:
        """Return the format of a round, counted from 1."""
        return self._formats[(round_number - 1) % len(self._formats)]


def update_formats(plan: Plan) -> UpdateFormats:
    """Return the formats of a plan's updates, round by round."""
    schema, settings = upload_schema(plan), plan.compression
    if settings is None or plan.kind != "train":
        return UpdateFormats([PlainFormat(schema)])
    trained = plan_schema(plan).with_roles(*SENT)
    told_count = schema.element_count - trained.element_count
    count = settings.layer_groups
    groups = [None] if count is None else layer_groups(trained, count)
    return UpdateFormats(
        [CompressedFormat(schema, settings, told_count=told_count, group=group) for group in groups]
    )


def update_format(plan: Plan, round_number: int) -> UpdateFormat:
    """Return the format of a plan's updates in a round, counted from 1."""
    return update_formats(plan).of_round(round_number)
