"""Kill the leading coordinator in mid-round, again and again, and count what its follower lost.

Two coordinators share a folder and a PostgreSQL; the product's agents, whose updates are made up
instead of trained, upload to one address.
Each kill falls into an open round, with none, one or two of its three updates committed. Figures
(``--json`` prints them as one object):

    kills               SIGKILLs of the coordinator that led.
    takeover_p50_s      From a kill until the other coordinator listens, median.
    takeover_p99_s      The same, 99th percentile.
    rounds              Rounds released through them.
    aborted             Attempts at a round that were given up.
    acknowledged        Updates that devices were told were counted.
    acknowledged_lost   Those that the store has not, or that were left out of a released round.
    released_twice      Rounds whose model changed after it was released.
    same_model          1 if every round ends in the bits of the same run without a kill.
"""

import math
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from sqlalchemy import func, select

from benchmarks.parts.deployment import wait_until
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.shared_deployment import SharedDeployment
from benchmarks.storms.book import read_book
from benchmarks.storms.kills import ReleaseWatch
from server.records.store import Store, open_store
from server.records.tables import attempts, contributions
from tests.server.postgresql_cluster import PostgresqlCluster

COHORT = 3
KILLS, QUICK_KILLS = 50, 4
_ROUND_S = 180.0


def take_over(kills: int, seed: int, tell: Callable[[str], None]) -> dict[str, float]:
    """Kill the leader so often and return the figures."""
    cluster = PostgresqlCluster()
    try:
        figures, digests = _with_kills(cluster, kills, seed, tell)
        tell(f"the same {len(digests)} rounds without a kill")
        figures["same_model"] = int(_undisturbed(cluster, len(digests)) == digests)
    finally:
        cluster.stop()
    return figures


def _with_kills(
    cluster: PostgresqlCluster, kills: int, seed: int, tell: Callable[[str], None]
) -> tuple[dict[str, float], list[bytes]]:
    source = random.Random(seed)  # noqa: S311 (moments that can be chosen again)
    took_s: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="sotto-takeover-") as folder,
        SharedDeployment(Path(folder), cluster.database().url, cohort=COHORT) as deployment,
    ):
        _start(deployment)
        deployment.standby = deployment.begin()
        deployment.standby.await_standby()
        watch = ReleaseWatch(deployment)
        watch.start()
        store = open_store(deployment.config.store)
        for number in range(kills):
            _await_middle(store, commits=source.randrange(COHORT))
            time.sleep(source.uniform(0, 0.02))
            took_s.append(deployment.kill_leader())
            tell(f"kill {number + 1}: {took_s[-1]:.2f} s, {len(watch.digests)} rounds")
        released = len(watch.digests)
        wait_until(lambda: len(watch.digests) > released, _ROUND_S)
        store.close()
        released_twice = watch.stop()
        book = read_book(deployment, COHORT)
        digests = [watch.digests[number] for number in sorted(watch.digests)]
    figures: dict[str, float] = {
        "kills": len(took_s),
        "takeover_p50_s": _percentile(took_s, 0.5),
        "takeover_p99_s": _percentile(took_s, 0.99),
        "rounds": len(digests),
        "aborted": sum(count for what, count in book.attempts.items() if "aborted" in what),
        "acknowledged": book.acknowledged,
        "acknowledged_lost": book.acknowledged_lost,
        "released_twice": released_twice,
    }
    return figures, digests


def _undisturbed(cluster: PostgresqlCluster, rounds: int) -> list[bytes]:
    """Return the models of so many rounds of one coordinator that nobody kills."""
    with (
        tempfile.TemporaryDirectory(prefix="sotto-takeover-") as folder,
        SharedDeployment(
            Path(folder), cluster.database().url, cohort=COHORT, cap=rounds
        ) as deployment,
    ):
        _start(deployment)
        wait_until(lambda: deployment.rounds_logged() == rounds, _ROUND_S * rounds, 0.2)
        return [row.parameters_sha256 for row in deployment.released()]


def _start(deployment: SharedDeployment) -> None:
    deployment.leader = deployment.begin()
    deployment.leader.await_open()
    deployment.enrol()
    for number in range(COHORT):
        deployment.start_idle_device(number, "--verbose")


def _await_middle(store: Store, commits: int) -> None:
    """Wait until a round is open with so many of its updates committed."""
    count = (
        select(func.count(contributions.c.id))
        .select_from(
            attempts.outerjoin(
                contributions,
                (contributions.c.round_number == attempts.c.round_number)
                & (contributions.c.attempt == attempts.c.attempt),
            )
        )
        .where(attempts.c.state == "open")
        .group_by(attempts.c.round_number)
    )

    def is_there() -> bool:
        with store.read() as connection:
            return connection.execute(count).scalar() == commits

    wait_until(is_there, _ROUND_S, 0.01)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def main() -> None:
    """Kill and print."""
    parser = benchmark_parser(__doc__, quick=f"{QUICK_KILLS} kills in place of {KILLS}")
    parser.add_argument("--seed", type=int, default=1, help="decides on the moments")
    arguments = parser.parse_args()
    console = Console(file=sys.stderr)
    figures = take_over(
        QUICK_KILLS if arguments.quick else KILLS,
        arguments.seed,
        lambda line: console.print(line, highlight=False),
    )
    show_figures(figures, "Takeovers", as_json=arguments.json)


if __name__ == "__main__":
    main()
