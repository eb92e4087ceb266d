"""A federation as it goes, drawn in a terminal: the round as it fills, figures, budget, refusals.

It asks what ``sotto-server status`` and ``rounds`` ask, and shows under a guarantee only what
follows from no device's part in a round.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from privacy.foundation.flags import Flag
from privacy.foundation.whole_number_flags import at_least_one
from privacy.noise.plan_events import budgets_of
from server.machine.answers import Phase, shown_phase
from server.operating.commands import Federation
from server.operating.flags import OnFolder
from server.operating.remedies import remedy
from server.operating.report import StatusReport
from server.releases.publishing import ReleaseSummary

_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK_ROUNDS = 60
_BAR_WIDTH = 40
_PACE_ROUNDS = 10
# Figures by which a model is followed, the first that a run has.
_FIGURES = ("perplexity", "accuracy", "mel_l1", "loss")


class Promise(NamedTuple):
    """What a run may spend, and how long it goes on.

    Attributes:
        budgets: Largest epsilon by onlooker; none where nothing is promised.
        last_round: Round after which the run ends.
        hides_cohort: Whether counts of the drawn and the committed stay secret.
    """

    budgets: dict[str, float]
    last_round: int
    hides_cohort: bool


class Watched(OnFolder, frozen=True, kw_only=True):
    """A federation to look at.

    Attributes:
        every: Seconds between two looks.
    """

    every: Annotated[int, Flag("SECONDS", parse=at_least_one)] = 2


class Seen(NamedTuple):
    """What one look brought: the report, and every release of the run."""

    report: StatusReport
    rounds: Sequence[ReleaseSummary]


def watch(asked: Watched) -> None:
    """Show the federation as it goes, in a terminal, until Ctrl-C.

    Round, figures, epsilon against its budget, refusals and what to do about them. Where the output
    is no terminal, it is drawn once.
    """
    federation = Federation(asked.folder)
    privacy, console = federation.config.privacy, Console()
    promise = Promise(
        {budget.onlooker: budget.epsilon_budget for budget in budgets_of(privacy)},
        federation.config.rounds.cap,
        hides_cohort=privacy.guarantees_privacy,
    )
    rounds: list[ReleaseSummary] = []
    with _screen(console) as show, suppress(KeyboardInterrupt):
        while True:
            rounds += federation.rounds(rounds[-1].round_number + 1 if rounds else 1)
            show(drawn(Seen(federation.status(), rounds), promise))
            if not console.is_terminal:
                return
            time.sleep(asked.every)


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Lend what draws over the whole terminal, or prints where there is none."""
    if not console.is_terminal:
        yield console.print
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        yield lambda picture: live.update(picture, refresh=True)


def drawn(seen: Seen, promise: Promise) -> RenderableType:
    """Return the whole picture of one look."""
    report, rounds = seen
    parts: list[RenderableType] = [_title(seen, promise), ""]
    facts = Table.grid(padding=(0, 2))
    if not promise.hides_cohort and report.leased_clients + report.committed_clients:
        drawn_count = max(report.leased_clients, report.committed_clients)
        bar = Bar(drawn_count, 0, report.committed_clients, width=_BAR_WIDTH, color="green")
        facts.add_row("updates", bar, f"{report.committed_clients} of {drawn_count}")
    facts.add_row("devices", f"{report.connected_clients} of {report.enrolled_clients} connected")
    if report.device_versions:
        told = ", ".join(f"{name} on {n}" for name, n in sorted(report.device_versions.items()))
        facts.add_row("versions", told)
    if rounds and not promise.hides_cohort:
        facts.add_row("newest", _phases_of(rounds[-1]))
    _add_figure(facts, rounds)
    _add_budgets(facts, seen, promise)
    parts.append(facts)
    for line in (report.shortage, report.helper):
        if line:
            parts += ["", Text(line)]
    if report.refusals:
        parts += ["", _refusals(report)]
    return Group(*parts)


def _title(seen: Seen, promise: Promise) -> Text:
    report, rounds = seen
    shown = shown_phase(report.phase, hides_cohort=promise.hides_cohort)
    phase = "paused" if report.is_paused else shown
    left = f" · {report.remaining_s:.0f} s left" if report.remaining_s else ""
    leader = f" · {report.leader} leads" if report.leader else ""
    of_all = f"round {report.round_number} of {promise.last_round}"
    if shown == Phase.FINISHED or report.round_number > promise.last_round:
        # No round comes next.
        released = rounds[-1].round_number if rounds else 0
        of_all = f"{released} of {promise.last_round} rounds released"
    return Text(f"{of_all} · {phase}{left}{leader}", style="bold")


def _phases_of(newest: ReleaseSummary) -> str:
    told = f"round {newest.round_number} took {newest.duration_s:.3g} s"
    closing_s = _number(newest.metrics.get("closing_s"))
    return told if math.isnan(closing_s) else f"{told}, {closing_s:.2g} s of that to sum it"


def _add_figure(facts: Table, rounds: Sequence[ReleaseSummary]) -> None:
    """Add the run of the figure by which the model is followed, or how to get one."""
    names = {name for summary in rounds for name in summary.metrics}
    name = next((one for kind in _FIGURES for one in sorted(names) if one.endswith(kind)), None)
    if name is None:
        if rounds:
            how = "none yet: [evaluation] in federation.toml has one measured"
            facts.add_row("figure", Text(how))
        return
    values = [_number(summary.metrics.get(name)) for summary in rounds]
    known = [value for value in values if math.isfinite(value)]
    if known:
        facts.add_row(name.replace("_", " "), sparkline(values), f"{known[-1]:.4g} now")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def sparkline(values: Sequence[float]) -> str:
    """Return the last values as blocks of rising height, and a blank for what is no number."""
    shown = values[-_SPARK_ROUNDS:]
    known = [value for value in shown if math.isfinite(value)]
    if not known:
        return ""
    least, most = min(known), max(known)
    steps = (len(_BLOCKS) - 1) / (most - least) if most > least else 0.0
    return "".join(
        _BLOCKS[round((value - least) * steps)] if math.isfinite(value) else " " for value in shown
    )


def _add_budgets(facts: Table, seen: Seen, promise: Promise) -> None:
    facts.add_row("promise", Text(seen.report.guarantee))
    for onlooker, budget in promise.budgets.items():
        spent = seen.report.epsilons.get(onlooker, 0.0)
        bar = Bar(budget, 0, min(spent, budget), width=_BAR_WIDTH, color="yellow")
        facts.add_row(f"ε, {onlooker}", bar, f"{spent:.3g} of {budget:g}")
    day = last_day(seen.rounds, promise.last_round)
    if day is not None:
        ends = "the budget's last round" if promise.budgets else "the last round"
        facts.add_row("ends", f"{ends} is on {day} at this pace")


def last_day(rounds: Sequence[ReleaseSummary], last_round: int) -> str | None:
    """Return the UTC day of the last round at the pace of the newest ones; None before two.

    ``rounds`` begin with 1: the start, round 0, is no measure of pace.
    """
    if len(rounds) < 2 or rounds[-1].round_number >= last_round:
        return None
    first, last = rounds[-_PACE_ROUNDS:][0], rounds[-1]
    pace_s = (last.recorded_at - first.recorded_at) / (last.round_number - first.round_number)
    ends_at = last.recorded_at + pace_s * (last_round - last.round_number)
    try:
        return datetime.fromtimestamp(ends_at, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return None  # centuries from now


def _refusals(report: StatusReport) -> Table:
    table = Table("refused", "times", "what to do", box=None, pad_edge=False)
    for code, count in sorted(report.refusals.items(), key=lambda item: -item[1]):
        table.add_row(code, str(count), remedy(code))
    return table
