"""The number of the wire contract that both ends of this software speak."""

PROTOCOL_VERSION = 1


def version_mismatch(theirs: int, *, us: str, them: str) -> str | None:
    """Return one line that says which side is older, or None if both speak the same version.

    Args:
        theirs: The other side's protocol version.
        us: What to call this side, such as ``the coordinator``.
        them: What to call the other side.
    """
    if theirs == PROTOCOL_VERSION:
        return None
    older = us if theirs > PROTOCOL_VERSION else them
    return f"protocol version must be {PROTOCOL_VERSION}, got {theirs}; {older} is older: update it"
