"""Every reader of bytes from outside; a new one is a line in a file under ``readers``."""

from tests.fuzz.readers import (
    datasets,
    device,
    export,
    helper,
    models,
    privacy,
    serve,
    server,
    simulation,
)
from tests.fuzz.target import Target

_PACKAGES = (privacy, models, device, datasets, export, serve, server, helper, simulation)


def targets() -> list[Target]:
    """Return all targets, ordered by package."""
    return [target for package in _PACKAGES for target in package.targets()]


def target(name: str) -> Target:
    """Return the target of a name; KeyError if there is none."""
    return {one.name: one for one in targets()}[name]
