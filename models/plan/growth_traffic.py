"""The bytes that layer-wise growth saves, as exact fractions and in words. No torch.

References:
    [FedDT-TTS] arXiv:2107.08795, section 3.2. Its printed sum counts one stage instead of c; the
        formulas here count rounds.
"""

from fractions import Fraction

import msgspec

from models.plan.travel import describe_size
from models.settings.growing_layers import growing_layers
from models.settings.growth import GrowthSettings, layer_rounds
from models.vector.schema import RECEIVED, SENT, Schema


def traffic_share(settings: GrowthSettings) -> Fraction:
    """Return the growing layers' traffic over that without growth, (c+1)/(2c) if c divides T."""
    return Fraction(layer_rounds(settings), settings.target_layer_count * settings.round_count)


def traffic_share_of_model(
    settings: GrowthSettings, *, growing_bytes: int, fixed_bytes: int
) -> Fraction:
    """Return a whole model's traffic over that without growth.

    ``growing_bytes`` are parameters of all L layers, ``fixed_bytes`` those from the first round on.
    """
    if min(growing_bytes, fixed_bytes) < 0 or growing_bytes + fixed_bytes == 0:
        raise ValueError(
            f"growing_bytes and fixed_bytes must be >= 0 and not both 0, got {growing_bytes} and "
            f"{fixed_bytes}"
        )
    grown = traffic_share(settings) * growing_bytes
    return (grown + fixed_bytes) / (growing_bytes + fixed_bytes)


def growing_and_fixed_bytes(model: msgspec.Struct, schema: Schema) -> tuple[int, int]:
    """Return the bytes of the layers' tensors, and of all others, in a whole model's schema."""
    layers = growing_layers(model)
    of_layers = tuple(spec for spec in schema.tensors if layers.layer_of(spec.name) is not None)
    growing_bytes = Schema(of_layers).payload_bytes
    return growing_bytes, schema.payload_bytes - growing_bytes


def describe_growth(settings: GrowthSettings, model: msgspec.Struct, schema: Schema) -> str:
    """Return the stages in words, and the bytes that they save a device of the whole model."""
    told = (
        f"{settings.target_layer_count} layers in {settings.stage_count} stages over "
        f"{settings.round_count} rounds"
    )
    down = growing_and_fixed_bytes(model, schema.with_roles(*RECEIVED))
    up = growing_and_fixed_bytes(model, schema.with_roles(*SENT))
    growing, fixed = down[0] + up[0], down[1] + up[1]
    if not growing + fixed:  # A method may share nothing.
        return told
    share = traffic_share_of_model(settings, growing_bytes=growing, fixed_bytes=fixed)
    whole = settings.round_count * (growing + fixed)
    return (
        f"{told}; a device in all of them moves {describe_size(round(share * whole))} of "
        f"parameters instead of {describe_size(whole)}, {100 * float(1 - share):.1f} % less, "
        "compression aside"
    )
