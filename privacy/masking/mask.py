"""What leaves a device under its mask, and what is left of a sum without the masks.

A device packs its integers plus its keystream, modulo 2^bits. The coordinator adds packed messages,
takes out the sum of the keystreams, which the helper computed, and has the sum of the integers.
"""

import numpy as np
from numpy.typing import NDArray

from privacy.masking.keystream import add_keystream, reduce_modulo
from privacy.masking.packing import pack


def masked(values: NDArray[np.int64], seed: bytes, *, bits: int) -> memoryview:
    """Return integers modulo 2^bits plus the seed's keystream, packed.

    Args:
        values: A rounded message with its noise and its check elements, shape ``(elements,)``.
        seed: 32 secret bytes, fresh for this message.
        bits: Width of the sum's elements, one of ``PACKED_BITS``.

    Raises:
        ValueError: If the seed or the width is none.
    """
    # A conversion to fewer bits keeps the lowest ones: the integer modulo 2^32.
    total = values.astype(np.uint32)
    add_keystream(total, seed, bits=bits)
    return pack(total, bits)


def unmasked(
    total: NDArray[np.uint32], keystreams: NDArray[np.uint32], *, bits: int
) -> NDArray[np.uint32]:
    """Return a sum of masked messages without the sum of their keystreams, modulo 2^bits.

    Both have shape ``(elements,)`` and may have wrapped at 2^32.
    """
    left = total - keystreams
    reduce_modulo(left, bits)
    return left
