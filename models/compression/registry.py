"""Choose how values are written: the one place that devices, coordinator and simulation ask."""

from typing import assert_never

from models.compression.block_quantisation import BlockQuantisation
from models.compression.half_precision import Bfloat16, Float16, Float32
from models.compression.low_rank import LowRankCoder
from models.compression.sparse import Choice, Drawn, Largest, SparseCoder
from models.compression.value_coder import ValueCoder
from models.settings.compression import CompressionSettings
from models.vector.schema import Schema


def build_value_coder(settings: CompressionSettings, schema: Schema) -> ValueCoder:
    """Return what writes and reads the values of an update.

    Args:
        settings: How they travel.
        schema: The tensors whose values they are.
    """
    every = _coder_of_each(settings)
    if settings.rank is not None:
        return LowRankCoder(schema, settings.rank, every)
    if settings.keep == "all" or settings.keep_fraction is None:
        return every
    choice: Choice = Largest() if settings.keep == "top" else Drawn()
    return SparseCoder(choice, settings.keep_fraction, every)


def _coder_of_each(settings: CompressionSettings) -> ValueCoder:
    match settings.uplink:
        case "none":
            return Float32()
        case "bfloat16":
            return Bfloat16()
        case "float16":
            return Float16()
        case "int8":
            return BlockQuantisation(8, settings.block_size)
        case "int4":
            return BlockQuantisation(4, settings.block_size)
        case _:
            assert_never(settings.uplink)
