"""Run rounds behind a bad network, and the same rounds without it."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.parts.deployment import Deployment, wait_until
from benchmarks.storms.bad_link import BadLink, Passed, Weather
from benchmarks.storms.book import Book, read_book
from privacy.sealing.envelope import sealed_bytes

COHORT = 3
UNDISTURBED_S = 600.0
# A short run goes on for so long, until it has a round.
PATIENCE_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The federation behind the link.

    Attributes:
        words: Size of the vocabulary.
        hidden: Width of the tied GRU.
        deadline_s: Seconds of a round at most.
    """

    words: int = 10_000
    hidden: int = 128
    deadline_s: float = 180.0


@dataclass(frozen=True)
class Behind:
    """The outcome of the rounds behind the link.

    Attributes:
        rounds: Rounds that were released.
        longest_round_s: The longest time from one release to the next, or to the end.
        same_model: Whether the same rounds without the link end in the same bits.
        bytes_ratio: Bytes that passed over the sealed bytes of the released rounds.
        passed: What the link did.
        book: What became of attempts and updates.
    """

    rounds: int
    longest_round_s: float
    same_model: bool
    bytes_ratio: float
    passed: Passed
    book: Book


def run_behind(
    weather: Weather, setting: Setting, *, seed: int, seconds: float, tell: Callable[[str], None]
) -> Behind:
    """Run rounds behind the link for so long, then the same number of rounds without it."""
    with tempfile.TemporaryDirectory(prefix="sotto-storm-") as folder:
        deployment = _deployment(Path(folder), setting)
        with BadLink(deployment.devices_port, weather, seed) as link, deployment:
            _start(deployment, link.port)
            moments, passed_bytes = _watch(deployment, link, seconds, tell)
            ends = [*moments[1:], time.monotonic()]
            book = read_book(deployment, COHORT)
            passed = link.passed
        rounds = len(moments) - 1
        digest = deployment.released()[rounds - 1].parameters_sha256 if rounds else b""
        least = 2 * COHORT * rounds * sealed_bytes(deployment.config.schema.payload_bytes)
    return Behind(
        rounds=rounds,
        longest_round_s=max(end - begun for begun, end in zip(moments, ends, strict=True)),
        same_model=bool(rounds) and _undisturbed_digest(setting, rounds) == digest,
        bytes_ratio=passed_bytes / least if rounds else float("inf"),
        passed=passed,
        book=book,
    )


def _deployment(folder: Path, setting: Setting, cap: int = 1_000_000) -> Deployment:
    return Deployment(
        folder,
        words=setting.words,
        hidden=setting.hidden,
        cohort=COHORT,
        deadline_s=setting.deadline_s,
        cap=cap,
        retry_limit=1000,
    )


def _start(deployment: Deployment, port: int | None) -> None:
    """Start a coordinator and its devices, which find it at another port where one is given."""
    deployment.start_coordinator()
    deployment.enrol()
    for number in range(COHORT):
        if port is not None:
            folder = deployment.device_folder(number)
            address = f"127.0.0.1:{port}"
            folder.save(msgspec.structs.replace(folder.enrolment(), device_address=address))
        deployment.start_training_device(number)


def _watch(
    deployment: Deployment, link: BadLink, seconds: float, tell: Callable[[str], None]
) -> tuple[list[float], int]:
    """Return when the run began and each round was released, and the bytes up to the last."""
    moments, passed_bytes = [time.monotonic()], 0
    while (left_s := seconds - (time.monotonic() - moments[0])) > 0 or (
        len(moments) == 1 and left_s > -PATIENCE_S
    ):
        if deployment.rounds_logged() > len(moments) - 1:
            moments.append(time.monotonic())
            passed_bytes = link.passed.payload_bytes
        tell(
            f"behind the link: {left_s:.0f} s left, {len(moments) - 1} rounds, "
            f"{link.passed.cuts} cuts, {link.passed.holes} holes, "
            f"{link.passed.payload_bytes / 1e6:.0f} MB"
        )
        time.sleep(0.2)
    return moments, passed_bytes


def _undisturbed_digest(setting: Setting, rounds: int) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sotto-storm-") as folder:
        with _deployment(Path(folder), setting, cap=rounds) as deployment:
            _start(deployment, None)
            wait_until(
                lambda: deployment.rounds_logged() == rounds, UNDISTURBED_S + 10 * rounds, 0.2
            )
        digest: bytes = deployment.released()[-1].parameters_sha256
        return digest
