"""Ask devices about a secret word with crafted models, and count how many answers tell of it.

In each mode whose onlooker is the coordinator, two people get the same crafted model and plan: one
has typed the word, the other something else, or nothing of use. Requests, codes, sizes, kept states
and the opened updates under the same noise are compared; time is not.

    python -m benchmarks.device_answers --json

``models`` is how many crafted models each of the ``modes`` got; ``distinguishable`` must be 0.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.parts.answering_device import AnsweringDevice
from benchmarks.parts.crafted_models import MODES, crafted
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.two_answers import verdict
from benchmarks.parts.two_parties import Parties
from edge_client.folder.layout import CoordinatorKeys, DeviceFolder, Enrolment
from edge_client.owner.starting_floor import write_starting_floor

MODELS, QUICK_MODELS = 200, 20


def main(argv: Sequence[str] | None = None) -> int:
    """Ask, and print what was found; the status is 1 if anything told two people apart."""
    arguments = _parsed(argv)
    models = QUICK_MODELS if arguments.quick else arguments.models
    told: Counter[str] = Counter()
    refused = 0
    with tempfile.TemporaryDirectory() as root:
        device = enrolled_device(Path(root))
        for mode in MODES:
            for index in range(models):
                found = verdict(device, mode, index)
                refused += found.refused
                if found.told_by is not None:
                    told[mode] += 1
                    kind = crafted(mode, index).kind
                    print(f"{mode} {index} {kind}: {found.told_by}", file=sys.stderr)
    figures: dict[str, float] = {
        "models": models,
        "modes": len(MODES),
        "refused_alike": refused,
        "distinguishable": sum(told.values()),
        **{f"distinguishable_{mode}": told[mode] for mode in MODES},
    }
    show_figures(figures, "Answers to crafted models", as_json=arguments.json)
    return int(bool(told))


def enrolled_device(root: Path) -> AnsweringDevice:
    """Certify a coordinator and a device below a folder, and return the device."""
    parties = Parties.certify(root)
    folder = DeviceFolder(root / "enrolled")
    folder.create()
    (root / "device").rename(folder.identity)
    given = parties.coordinator.certificates
    folder.save_coordinator(CoordinatorKeys(**given._asdict()))
    folder.save(
        Enrolment(
            client_name="device-0001",
            run=bytes(16).hex(),
            device_address="localhost:1",
            ca_certificate=parties.coordinator.authority,
        )
    )
    write_starting_floor(folder.floor)
    return AnsweringDevice(folder, parties.coordinator, root)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    quick = f"{QUICK_MODELS} models a mode instead of {MODELS}"
    parser = benchmark_parser(__doc__, quick=quick)
    parser.add_argument("--models", type=int, default=MODELS, help="crafted models a mode")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
