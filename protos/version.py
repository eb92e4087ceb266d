"""The versions that two ends tell each other when a device checks in.

They stand here, where nothing else is: looking the software's up in the package's metadata would
load an e-mail parser and a zip reader into every resting device, and the plan's every family of
models.
"""

VERSION = "0.1.0"
"""Version of this software; the package's metadata takes it from here."""

PLAN_VERSION = 1
"""Version of `models.plan.plan.Plan`; both ends must know it."""

PROTOCOL_VERSION = 2
"""Version of the wire contract that both ends speak.

2: plans are signed, and a sealed message's header has the plan's digest.
"""

HELPER_VERSION = 1
"""Version of the contract between a coordinator and a helper, which others may update later."""


def version_mismatch(theirs: int, *, us: str, them: str) -> str | None:
    """Return one line that says which side is older, or None if both speak the same version.

    ``us`` and ``them`` are what to call the sides, such as ``the coordinator``.
    """
    if theirs == PROTOCOL_VERSION:
        return None
    older = us if theirs > PROTOCOL_VERSION else them
    return f"protocol version must be {PROTOCOL_VERSION}, got {theirs}; {older} is older: update it"
