"""What a device keeps in memory while it waits for work, which it does for months."""

import subprocess
import sys

# What would each cost megabytes: a round's work, and parsers for looking up what is constant.
NOT_AT_REST = {
    "torch",
    "numpy",
    "rich",
    "models.plan.plan",
    "edge_client.agent.lease",
    "edge_client.owner.doctor",
    "importlib.metadata",
    "importlib.resources",
    "zipfile",
    "gzip",
    "fractions",
}

SHOW_LOADED = f"""
import sys
import edge_client.cli
print(*sorted({NOT_AT_REST!r} & sys.modules.keys()))
"""


def test_a_device_that_waits_has_loaded_nothing_that_only_work_needs() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", SHOW_LOADED], capture_output=True, text=True, check=True
    )

    assert shown.stdout.split() == []
