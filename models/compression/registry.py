"""Choose how values are written: the one place that devices, coordinator and simulation ask."""

import msgspec

from models.compression.block_quantisation import BlockQuantisation
from models.compression.half_precision import Bfloat16, Float32
from models.compression.sparse import SparseCoder
from models.compression.value_coder import ValueCoder
from models.settings.compression import CompressionSettings
from privacy.foundation.removed_settings import check_removed


def build_value_coder(settings: CompressionSettings) -> ValueCoder:
    """Return what writes and reads the values of an update.

    Raises:
        ValueError: If they would travel in a form that was removed.
    """
    check_removed({"compression": msgspec.structs.asdict(settings)})
    forms: dict[str, ValueCoder] = {
        "none": Float32(),
        "bfloat16": Bfloat16(),
        "int8": BlockQuantisation(8, settings.block_size),
        "int4": BlockQuantisation(4, settings.block_size),
    }
    every = forms[settings.uplink]
    if settings.keep_fraction is None:
        return every
    return SparseCoder(settings.keep_fraction, every)
