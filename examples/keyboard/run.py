"""Train a keyboard on five devices of this machine, export it, and ask it for words.

Real processes: one coordinator and five devices, over loopback with mutual TLS and sealed
parameters. Writes everything below ``demo/`` and the picture ``demo.png``.
"""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from edge_client.descent.compute import prepare_compute
from examples.keyboard.attention import attention_weights
from examples.keyboard.devices import Deal, deal
from examples.keyboard.following import DemoError, await_coordinator, follow
from examples.keyboard.picture import draw
from examples.keyboard.processes import ProcessFailedError, run_beside, running, sotto
from examples.keyboard.scoring import report, score, start_of
from examples.keyboard.setting_up import ROUNDS, Place, enrol_devices, found_federation
from server.config.federation import FederationConfig

ROOT = Path(__file__).resolve().parent.parent.parent
DEVICES = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"rounds to train (default: {ROUNDS})")
    arguments = parser.parse_args(argv)
    # Ctrl-C and a polite kill both unwind the stack, and with it every process started here.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _demonstrate(Place(ROOT / "demo"), Console(), arguments.rounds)
    except (DemoError, ProcessFailedError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: stopped; nothing is left running", file=sys.stderr)
        return 130
    return 0


def _demonstrate(place: Place, console: Console, rounds: int | None) -> None:
    started = time.monotonic()
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir()
    prepare_compute("cpu", threads=1)
    hands = deal(place.folder, DEVICES)
    console.print(
        f"Five devices hold {', '.join(map(str, hands.topics))} topics of the Python manual; "
        f"nobody holds the {len(hands.held_out)} sentences that the keyboard is scored on."
    )
    config = found_federation(place, hands, rounds)
    start = start_of(config, hands)
    before = score(config, hands, start)
    perplexities = [before.perplexity, *_train(place, config, hands, console)]
    words = config.word_list.load()
    with run_beside(sotto("export", "keyboard", place.coordinator, "--out", place.bundle)):
        weights = attention_weights(config, hands.folders, words, start)
    report(place, config, hands, before, console)
    console.print(
        "[yellow]Not private:[/] five devices with this noise have no privacy guarantee. "
        "The noise mode is the paper's; it shows the mechanics and promises nothing."
    )
    draw(ROOT / "demo.png", perplexities, weights)
    console.print(
        f"Bundle: demo/{place.bundle.name}. Picture: demo.png. "
        f"Done in {time.monotonic() - started:.0f} s."
    )


def _train(place: Place, config: FederationConfig, hands: Deal, console: Console) -> list[float]:
    """Run the federation to its last round; return the perplexity after each."""
    coordinator = {"coordinator": sotto("server", "run", place.coordinator)}
    with running(coordinator, place.folder) as served:
        await_coordinator(place, served["coordinator"])
        # Before newer releases take its place: a coordinator keeps the last few.
        exported = sotto("export", "keyboard", place.coordinator, "--out", place.starting_bundle)
        with run_beside(exported):
            enrol_devices(place, hands)
        console.print("Coordinator and devices are enrolled; each made its own three keys.")
        devices = {
            text.parent.name: sotto("client", "--verbose", "run", text.parent, "--data", text)
            for text in hands.folders
        }
        with running(devices, place.folder) as agents:
            return follow(place, config.rounds.cap, served | agents, console)


if __name__ == "__main__":
    sys.exit(main())
