"""Releases of runs that promise privacy."""

from dataclasses import replace

from msgspec.structs import replace as changed

from export.releases.release import Release
from privacy.noise.calibrated_settings import CentralNoise

PROMISE = "central: (80, 0.001)-differential privacy for one person over the whole run"
EPSILON, DELTA = 77.2, 0.001


def promising(release: Release) -> Release:
    """Return a release as a run with calibrated noise makes it, with what it has spent."""
    privacy = CentralNoise(
        clipping_norm=1.0,
        noise_multiplier=0.1,
        delta=DELTA,
        epsilon_budget=80.0,
        adjacency="zero-out",
    )
    record = changed(
        release.record,
        metrics=release.record.metrics | {"epsilon": EPSILON, "delta": DELTA},
        guarantee=PROMISE,
    )
    return replace(release, plan=changed(release.plan, privacy=privacy), record=record)
