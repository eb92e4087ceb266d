"""Say in Prometheus' words where a run stands: never by device, and nothing of anybody's text.

Nothing is counted here. Each figure is read when it is asked for, from where the coordinator counts
it anyway. Prometheus asks in a thread of its own: the event loop spends the time of a few sums on
it, and the store one count a minute at most.

Where the noise mode gives a guarantee, only what follows from no device's part in a round is shown:
no noise would cover the rest.
"""

import asyncio
import math
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from privacy.accounting.onlookers import Epsilons
from privacy.noise.plan_events import budgets_of
from privacy.noise.settings import PrivacySettings
from server.coordinating.coordinator import Coordinator
from server.coordinating.standing import Standing
from server.machine.answers import Phase, shown_phase

_PATIENCE_S = 10.0
_ENROLLED_FOR_S = 60.0


class CoordinatorMetrics(Collector):
    """The figures of a coordinator that leads."""

    def __init__(self, folder: Path, privacy: PrivacySettings, coordinator: Coordinator) -> None:
        """Tell of one coordinator, on whose event loop this is called; its disk is ``folder``'s."""
        self._folder = folder
        self._privacy = privacy
        self._coordinator = coordinator
        self._loop = asyncio.get_running_loop()
        self._enrolled = 0
        self._enrolled_until = -math.inf

    def collect(self) -> Iterator[Metric]:
        """Return every figure, from any thread but the event loop's.

        Raises:
            TimeoutError: If the event loop does not come to it.
        """
        looking = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
        now = looking.result(_PATIENCE_S)
        yield from of_process(self._folder, leads=True)
        shown = shown_phase(now.phase, hides_cohort=self._privacy.guarantees_privacy)
        yield from _of_round(now, shown, self._enrolled)
        yield from _of_certificates(now)
        yield from _of_budgets(now.spent, self._privacy)
        if not self._privacy.guarantees_privacy:
            yield from _of_devices(now)

    async def _look(self) -> Standing:
        if time.monotonic() >= self._enrolled_until:
            self._enrolled = await self._coordinator.enrolled()
            self._enrolled_until = time.monotonic() + _ENROLLED_FOR_S
        return self._coordinator.standing()


class StandbyMetrics(Collector):
    """The figures of a coordinator that stands by."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        """Return every figure."""
        return of_process(self._folder, leads=False)


def of_process(folder: Path, *, leads: bool) -> Iterator[Metric]:
    """Return the figures of any coordinator: whether it leads, and the disk of its folder."""
    disk = shutil.disk_usage(folder)
    yield _gauge("sotto_leads", "1 if this coordinator leads, 0 if it stands by", float(leads))
    yield _gauge("sotto_disk_free_bytes", "Bytes left on the disk of the folder", disk.free)
    yield _gauge("sotto_disk_bytes", "Bytes of the disk of the folder", disk.total)


def _of_round(now: Standing, shown: str, enrolled: int) -> Iterator[Metric]:
    yield CounterMetricFamily("sotto_rounds_released", "Rounds released", now.released_rounds)
    yield _gauge("sotto_round_attempt", "How often the round was started over", now.attempt)
    if now.due_at is not None:
        yield _gauge(
            "sotto_round_due_seconds", "Unix time when the round should be over", now.due_at
        )
    phases = {phase.value: float(phase == shown) for phase in Phase}
    yield _gauges("sotto_phase", "1 for the phase of the round", "phase", phases)
    yield _gauge("sotto_paused", "1 if no new round is opened", float(now.is_paused))
    yield _gauge("sotto_enrolled_devices", "Devices that may be drawn", enrolled)
    yield _gauge("sotto_connected_devices", "Devices whose stream is open", now.connected)
    yield _gauge("sotto_quorum_devices", "Devices that a round needs to open", now.quorum)


def _of_devices(now: Standing) -> Iterator[Metric]:
    """Return what tells how many devices were drawn, refused or came, and how long that took."""
    yield _gauge("sotto_leased_devices", "Connected devices at work on the round", now.leased)
    yield _gauge("sotto_committed_devices", "Devices whose update is in", now.committed)
    yield _counters("sotto_refusals", "Refused plans and uploads", "code", now.refusals)
    yield CounterMetricFamily("sotto_received_bytes", "Bytes of updates", now.received_bytes)
    yield CounterMetricFamily("sotto_sent_bytes", "Bytes of models", now.sent_bytes)
    seconds = {phase.value: seconds for phase, seconds in now.phase_seconds.items()}
    yield _counters("sotto_phase_seconds", "Seconds in each phase", "phase", seconds)
    if now.closing_s is not None:
        yield _gauge(
            "sotto_closing_seconds", "Seconds in which the newest round was summed", now.closing_s
        )


def _of_certificates(now: Standing) -> Iterator[Metric]:
    ends = {"coordinator": now.certificates_end_at, "issuer": now.issuer_ends_at}
    yield _gauges("sotto_certificate_end_seconds", "Unix time of the end", "certificate", ends)


def _of_budgets(spent: Epsilons | None, privacy: PrivacySettings) -> Iterator[Metric]:
    """Return the budget of each onlooker who has one, and what is spent and left of it."""
    budgets: dict[str, float] = {
        budget.onlooker: budget.epsilon_budget for budget in budgets_of(privacy)
    }
    if not budgets:
        return
    used: dict[str, float] = {
        name: 0.0 if spent is None else getattr(spent, name) for name in budgets
    }
    left = {name: budget - used[name] for name, budget in budgets.items()}
    told = "with the open attempt"
    yield _gauges("sotto_epsilon_budget", "Largest epsilon of the run", "onlooker", budgets)
    yield _gauges("sotto_epsilon_spent", f"Epsilon spent, {told}", "onlooker", used)
    yield _gauges("sotto_epsilon_left", f"Epsilon left, {told}", "onlooker", left)


def _gauge(name: str, explanation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, explanation, value)


def _gauges(name: str, explanation: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, explanation, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counters(name: str, explanation: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, explanation, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
