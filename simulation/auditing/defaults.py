"""The defaults of an audit. No torch, since ``--help`` names it too."""

from typing import Literal

Part = Literal["canaries", "leakage", "exposure"]
PARTS: tuple[Part, ...] = ("canaries", "leakage", "exposure")
"""Audits, in the order in which they run."""

PRECISION = 0.025
"""Relative standard error of the measured noise multiplier."""

SECRET_COUNT = 4
"""Sentences to plant, one a client."""

REPETITIONS = 20
"""How often a client writes its sentence."""
