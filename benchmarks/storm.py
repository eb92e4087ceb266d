"""Raise a storm of faults against a real federation, and count what is lost.

Coordinator, agents and trainers are processes of their own over mutual TLS. Figures (``--json``
prints them as one object; those of ``--only`` alone where it is given):

    kills               SIGKILLs of coordinator, agents and trainers, in bursts at random moments.
    rounds              Rounds released through them.
    acknowledged        Updates that devices were told were counted, in all parts.
    acknowledged_lost   Those that the coordinator has not, or left out of a released round.
    released_twice      Rounds whose model changed after it was released.
    longest_stall_s     Longest calm after a burst until the next release.
    restart_p99_s       From a coordinator's start after a kill until it listens, 99th percentile.
    link_rounds         Rounds released behind a proxy: 200 ms each way, 1 MB/s a connection and
                        direction, 5 % cut a 256 KiB, half of the cuts seen at one end only, and
                        20 s a minute in which nothing passes. A tied GRU of width 128, 5.6 MB each
                        way, cohort and quorum 3, 180 s a round at most.
    longest_round_s     Longest time there without a release.
    same_model          1 if the same rounds without the proxy end in the same bits.
    bytes_ratio         Bytes that passed over the sealed bytes of the released rounds.
    disk_goes_on_s      From room on a full disk, of either side, to the next release.
    clock_rounds        Rounds of devices whose clocks are 23 h ahead, right and 23 h behind.
    clock_refused       1 if a device that is 25 h ahead was told to set its clock.
    clock_stall_s       Longest time to a release after the coordinator's clock jumped by 23 h.

A table of attempts and losses goes to stderr at the end. Moments and victims follow ``--seed``;
what a processor does meanwhile does not.
"""

import argparse
import math
import sys
import time
from collections import Counter

from rich.console import Console
from rich.table import Table

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.storms.bad_link import Weather
from benchmarks.storms.behind_link import Behind, Setting, run_behind
from benchmarks.storms.book import Book
from benchmarks.storms.full_disks import FullDisks, run_full_disks
from benchmarks.storms.kills import Kills, run_kills
from benchmarks.storms.wrong_clocks import WrongClocks, run_wrong_clocks

PARTS = ("kills", "proxy", "disk", "clocks")
QUICK_S = 12.0
# A short run needs a model that passes in it.
QUICK_SETTING = Setting(words=2_000, hidden=32, deadline_s=60.0)
QUICK_WEATHER = Weather(delay_s=0.05, hole_s=3.0, hole_every_s=12.0)
FULL_S, QUICK_FULL_S = 30.0, 3.0
BREATH_S = 1.0


class Storm:
    """The parts that were asked for, with their figures and books."""

    def __init__(self, console: Console, *, seed: int, quick: bool) -> None:
        self.figures: dict[str, float] = {}
        self.books: dict[str, Book] = {}
        self._console = console
        self._seed = seed
        self._quick = quick
        self._told_at = 0.0

    def raise_kills(self, seconds: float) -> None:
        """Kill processes for so long."""
        found = run_kills(seed=self._seed, seconds=seconds, tell=self._tell)
        self.figures |= _of_kills(found)
        if found.book is not None:
            self.books["kills"] = found.book

    def raise_link(self, seconds: float) -> None:
        """Run behind the bad link for so long."""
        weather, setting = (QUICK_WEATHER, QUICK_SETTING) if self._quick else (Weather(), Setting())
        found = run_behind(weather, setting, seed=self._seed, seconds=seconds, tell=self._tell)
        self.figures |= _of_link(found)
        self.books["proxy"] = found.book

    def raise_disks(self) -> None:
        """Fill each side's disk."""
        full_s = QUICK_FULL_S if self._quick else FULL_S
        found: FullDisks = run_full_disks(full_s=full_s, tell=self._tell)
        self.figures["disk_goes_on_s"] = found.goes_on_s
        self.books["disk of the coordinator"], self.books["disks of devices"] = found.books

    def raise_clocks(self) -> None:
        """Set clocks wrong."""
        found: WrongClocks = run_wrong_clocks(rounds=1 if self._quick else 3, tell=self._tell)
        self.figures |= {
            "clock_rounds": found.apart_rounds,
            "clock_refused": int(found.refused),
            "clock_stall_s": found.jump_stall_s,
        }
        self.books["clocks of devices"], self.books["coordinator's clock"] = found.books

    def _tell(self, line: str) -> None:
        """Show where the storm stands, now and then."""
        if self._console.is_terminal and time.monotonic() - self._told_at > BREATH_S:
            self._told_at = time.monotonic()
            self._console.print(line, highlight=False)


def _of_kills(found: Kills) -> dict[str, float]:
    restarts_s = sorted(found.restarts_s) or [math.nan]
    return {
        "kills": found.killed.total(),
        **{f"kills_{kind}": count for kind, count in sorted(found.killed.items())},
        "rounds": found.rounds,
        "released_twice": found.released_twice,
        "longest_stall_s": max(found.stalls_s),
        "restart_p99_s": restarts_s[math.ceil(0.99 * len(restarts_s)) - 1],
    }


def _of_link(found: Behind) -> dict[str, float]:
    return {
        "link_rounds": found.rounds,
        "longest_round_s": found.longest_round_s,
        "same_model": int(found.same_model),
        "bytes_ratio": found.bytes_ratio,
        "passed_mb": found.passed.payload_bytes / 1e6,
        "cuts": found.passed.cuts,
        "half_open": found.passed.half_open,
        "holes": found.passed.holes,
    }


def storm(arguments: argparse.Namespace, console: Console) -> Storm:
    """Raise the parts that were asked for; kills and proxy share the minutes."""
    parts = PARTS if arguments.only is None else (arguments.only,)
    raised = Storm(console, seed=arguments.seed, quick=arguments.quick)
    long_parts = [part for part in parts if part in {"kills", "proxy"}]
    seconds = QUICK_S if arguments.quick else arguments.minutes * 60 / max(1, len(long_parts))
    for part in parts:
        match part:
            case "kills":
                raised.raise_kills(seconds)
            case "proxy":
                raised.raise_link(seconds)
            case "disk":
                raised.raise_disks()
            case "clocks":
                raised.raise_clocks()
    books = raised.books.values()
    raised.figures["acknowledged"] = sum(book.acknowledged for book in books)
    raised.figures["acknowledged_lost"] = sum(book.acknowledged_lost for book in books)
    return raised


def show_books(books: dict[str, Book], console: Console) -> None:
    """Print what became of attempts and acknowledged updates in each part."""
    table = Table("part", "attempts", "acknowledged", "lost", "expired with their attempt")
    for part, book in books.items():
        table.add_row(
            part,
            _listed(book.attempts),
            str(book.acknowledged),
            str(book.acknowledged_lost),
            str(book.expired),
        )
    console.print(table)


def _listed(counts: Counter[str]) -> str:
    return "\n".join(f"{count} {what}" for what, count in counts.most_common())


def main() -> None:
    """Raise the storm and print."""
    parser = benchmark_parser(__doc__, quick="a few seconds of each part, with a small model")
    parser.add_argument("--minutes", type=float, default=20.0, help="of kills and proxy together")
    parser.add_argument("--seed", type=int, default=1, help="decides on moments and victims")
    parser.add_argument("--only", choices=PARTS, help="one part alone")
    arguments = parser.parse_args()
    console = Console(file=sys.stderr)
    raised = storm(arguments, console)
    show_books(raised.books, console)
    show_figures(raised.figures, "A storm", as_json=arguments.json)


if __name__ == "__main__":
    main()
