"""The versions that two ends tell each other when a device checks in.

They stand here, where nothing else is: looking the software's up in the package's metadata would
load an e-mail parser and a zip reader into every resting device, and the plan's every family of
models.
"""

VERSION = "0.1.0"
"""Of this software; the package's metadata takes it from here."""

PLAN_VERSION = 1
"""Of `models.plan.plan.Plan`; both ends must know it."""
