"""Choose how values are written: devices, coordinator and simulation all ask here."""

import msgspec

from models.compression.block_quantisation import BlockQuantisation
from models.compression.half_precision import Bfloat16, Float32
from models.compression.sparse import SparseCoder
from models.compression.value_coder import ValueCoder
from models.settings.compression import CompressionSettings
from privacy.foundation.removed_settings import check_removed


def build_value_coder(settings: CompressionSettings) -> ValueCoder:
    """Return the coder of an update's values, or raise ``ValueError`` for a removed form."""
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
