"""Describe in one line what travels between coordinator and devices under a method.

Both ends show the same line, so that an operator and a device's owner know what leaves the device
before anything does. No torch: the resting agent shows it too.
"""

from models.settings.compression import CompressionSettings
from models.settings.personalisation import PersonalisationSettings
from models.vector.schema import RELEASED, Role, Schema


def describe_travel(
    settings: PersonalisationSettings,
    schema: Schema,
    compression: CompressionSettings | None = None,
) -> str:
    """Return the method, the sizes of shared, generated and personal parts, and updates' form."""
    parts = (
        ("parameters of everyone", schema.with_roles(*RELEASED)),
        ("generated for each device and sealed for it alone", schema.with_roles(Role.GENERATED)),
        ("that never leave the device", schema.with_roles(Role.PERSONAL)),
    )
    told = [
        f"{part.element_count:,} {what} ({describe_size(part.payload_bytes)})"
        for what, part in parts
        if part.tensors
    ]
    form = "" if compression is None else f"; {compression.description}"
    return f"method {settings.method}: {', '.join(told)}{form}"


def describe_size(payload_bytes: int) -> str:
    """Return a size in words, such as ``6.4 MB``; a small one in bytes."""
    return f"{payload_bytes / 1e6:.1f} MB" if payload_bytes >= 1e5 else f"{payload_bytes:,} bytes"
