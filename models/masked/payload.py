"""The payload of a masked update: header, packed vector, sealed seed of the mask.

::

    magic "SOTTOMSK" | version, uint32 | zero, uint32 | layout SHA-256, 32 bytes | packed | sealed

The layout's digest covers schema, weighing and grid, and the size follows from them, so another
length, width or grid is refused before a value is read. The seed is sealed for the helper: the
coordinator hands it on and cannot open it.
"""

from typing import NamedTuple

from models.masked.layout import MASKED_HEADER, MaskedLayout
from models.vector.codec import CodecError, Payload, check_digest
from privacy.foundation.memory_pool import fresh_memory


class MaskedPayload(NamedTuple):
    """The two parts of a payload, views of its memory.

    Attributes:
        packed: The masked vector, ``layout.packed_bytes``.
        sealed_seed: The seed, sealed for the helper.
    """

    packed: memoryview
    sealed_seed: memoryview


def encode_payload(layout: MaskedLayout, packed: Payload, sealed_seed: Payload) -> memoryview:
    """Return the payload of a packed masked vector and the sealed seed of its mask.

    Raises:
        CodecError: If a part has another size than the layout gives it.
    """
    start, end = MASKED_HEADER.SIZE, MASKED_HEADER.SIZE + layout.packed_bytes
    parts = (("packed vector", packed, end - start), ("seed", sealed_seed, _seed_bytes(layout)))
    for name, part, size in parts:
        if memoryview(part).nbytes != size:
            raise CodecError(f"the {name} must have {size} bytes, got {memoryview(part).nbytes}")
    payload = fresh_memory(layout.payload_bytes)
    payload[:start] = MASKED_HEADER.encode(layout.sha256)
    payload[start:end] = memoryview(packed).cast("B")
    payload[end:] = memoryview(sealed_seed).cast("B")
    return payload.toreadonly()


def check_payload(layout: MaskedLayout, payload: Payload) -> None:
    """Check size, magic, version and layout without reading a value.

    Raises:
        CodecError: If one is another.
    """
    view = memoryview(payload)
    if not view.c_contiguous or view.nbytes != layout.payload_bytes:
        raise CodecError(
            f"payload must be {layout.payload_bytes} contiguous bytes, got {view.nbytes}"
        )
    other = "the update belongs to another model, weighing or grid"
    check_digest("layout", layout.sha256, MASKED_HEADER.decode_plain(view), other)


def split_payload(layout: MaskedLayout, payload: Payload) -> MaskedPayload:
    """Return the packed vector and the sealed seed; ``CodecError`` as in ``check_payload``."""
    check_payload(layout, payload)
    view = memoryview(payload).cast("B")
    end = MASKED_HEADER.SIZE + layout.packed_bytes
    return MaskedPayload(view[MASKED_HEADER.SIZE : end], view[end:])


def _seed_bytes(layout: MaskedLayout) -> int:
    return layout.payload_bytes - MASKED_HEADER.SIZE - layout.packed_bytes
