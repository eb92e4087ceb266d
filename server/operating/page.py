"""One page for whoever answers for a federation: promised and spent, figures, refusals, models.

It tells what ``sotto-server status``, ``rounds`` and ``ledger`` tell, of no device by name. Under a
guarantee it holds back what ``server.services.metrics`` does: how many devices were drawn, came or
were refused, what they sent, and how long a round took, of which no day has an hour.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

from rich.console import Console

from models.pages.by_round import Course, sections
from models.pages.curves import STYLE
from models.pages.document import Html, document, element, facts, table
from models.pages.ledger_proof import proof
from models.plan.release_record import Metric
from privacy.accounting.accountant import Reports
from privacy.accounting.budget import PrivacyBudget
from privacy.accounting.ledger_file import LedgerFile
from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.flags import Flag
from privacy.noise.plan_events import budgets_of
from server.config.federation import FederationConfig
from server.machine.answers import shown_phase
from server.operating.commands import Federation
from server.operating.flags import OnFolder
from server.operating.remedies import remedy
from server.operating.report import StatusReport
from server.releases.files import ReleaseFolder
from server.releases.publishing import ReleaseSummary

_MOST_MODELS = 12
_REFUSED = "refused_"
_COUNTS = ("contributions", "clipped", "closing_s")
_COUNTS_OF = (_REFUSED, "screened_")


class Paged(OnFolder, frozen=True, kw_only=True):
    """A page to write.

    Attributes:
        html: File to write, for its owner alone.
    """

    html: Annotated[Path, Flag("FILE")] = Path("report.html")


class Account(NamedTuple):
    """Everything that a page is made from.

    Attributes:
        promises: What the run promises, in words.
        rounds: Every release, that of the start as round 0.
        spent: What the ledger says was spent; None where nothing is promised.
        update_bytes: Bytes of the updates that counted, by round; empty under a guarantee.
        pointed: Round that ``latest`` and ``best`` name.
        kept: Rounds whose files are in the folder.
        now: Seconds since 1970 UTC.
    """

    config: FederationConfig
    folder: Path
    status: StatusReport
    promises: Sequence[str]
    rounds: Sequence[ReleaseSummary]
    ledger: LedgerFile
    spent: Reports | None
    update_bytes: Mapping[int, int]
    pointed: Mapping[str, int | None]
    kept: Sequence[int]
    now: float

    @property
    def hides_cohort(self) -> bool:
        """Return whether counts of the drawn and the committed stay secret."""
        return self.config.privacy.guarantees_privacy

    @property
    def budgets(self) -> tuple[PrivacyBudget, ...]:
        """Return what the run may spend, by onlooker."""
        return budgets_of(self.config.privacy)


def report(asked: Paged) -> None:
    """Write one page for whoever answers for the federation, running or not.

    Privacy promised and spent, figures by round, refusals with their remedy, and which model is
    served where. It is a file that loads nothing and has no script: open it, print it, send it.
    """
    page = federation_page(account_of(Federation(asked.folder)))
    write_atomically(asked.html.absolute(), page.encode())
    Console().print(f"wrote {asked.html}: open it in a browser", markup=False, soft_wrap=True)


def account_of(federation: Federation) -> Account:
    """Read the folder and the store of a federation, and ask its coordinator if one runs.

    Raises:
        AccountantsDisagreeError: If two accountants differ by more than rounding.
        LedgerError: If the ledger was changed, lost its end or belongs to another run.
        StoreError: If the store is damaged, or another run's.
    """
    # Here, because it imports torch, which takes a second.
    from server.config.start_lines import promises

    config, root = federation.config, federation.folder
    # In this order, beside a coordinator that goes on: the store knows what the folder holds, and
    # the ledger has paid for every round that is shown.
    releases = ReleaseFolder(root.releases)
    pointed = {name: releases.pointed(name) for name in ("latest", "best")}
    kept = [int(folder.name) for folder in releases.published()]
    status, rounds = federation.status(), federation.rounds(0)
    ledger, spent = federation.ledger()
    return Account(
        config=config,
        folder=root.root,
        status=status,
        promises=promises(config),
        rounds=rounds,
        ledger=ledger,
        spent=spent,
        update_bytes={} if config.privacy.guarantees_privacy else federation.update_bytes(),
        pointed=pointed,
        kept=kept,
        now=datetime.now(UTC).timestamp(),
    )


def federation_page(account: Account) -> str:
    """Return the page as HTML."""
    contents = [
        *_standing(account),
        element("h2", "Privacy"),
        *_privacy(account),
        element("h2", "Rounds"),
        *_rounds(account),
        element("h2", "Refused"),
        *_refused(account),
        element("h2", "Models"),
        *_models(account),
    ]
    return document(f"Report on {account.folder.name}", contents, style=STYLE)


def _standing(account: Account) -> Iterator[Html]:
    status, last_round = account.status, account.config.rounds.cap
    phase = shown_phase(status.phase, hides_cohort=account.hides_cohort)
    released = account.rounds[-1].round_number if account.rounds else 0
    revoked = sum(client.revoked_at is not None for client in status.clients)
    connected = f", {status.connected_clients} connected" if status.is_running else ""
    versions = sorted(status.device_versions.items())
    at = datetime.fromtimestamp(account.now, UTC).isoformat(sep=" ", timespec="minutes")
    yield facts(
        [
            ("as of", f"{at.removesuffix('+00:00')} UTC, sotto {status.software_version}"),
            ("state", "paused" if status.is_paused else phase.replace("_", " ")),
            ("rounds", f"{released:,} of {last_round:,} released"),
            ("devices", f"{status.enrolled_clients} enrolled, {revoked} revoked{connected}"),
            ("their software", ", ".join(f"{name} on {count}" for name, count in versions)),
            ("short of", status.shortage),
            ("task", account.config.task.replace("_", " ")),
            ("personalisation", status.personalisation),
            ("growth", status.growth),
            ("helper", status.helper),
            ("certificates", f"until {status.certificates_end_at}"),
            ("their issuer", f"until {status.issuer_ends_at}"),
        ]
    )


def _privacy(account: Account) -> Iterator[Html]:
    for line in account.promises:
        yield element("p", element("b", "Promised"), f": {line}.")
    if account.spent is None:
        yield element(
            "p",
            "There is no budget and no epsilon: nothing bounds what a model tells of one person.",
        )
        return
    export = ("sotto-server", "ledger", str(account.folder), "--json")
    spent, budgets = account.spent, account.budgets
    yield from proof(account.ledger, spent, budgets, path="ledger.json", export=export)


def _rounds(account: Account) -> Iterator[Html]:
    rounds = [summary for summary in account.rounds if summary.round_number > 0]
    if not rounds:
        yield element("p", "No round was released yet: there is no figure to show.")
        return
    again = sum(summary.attempt for summary in rounds)
    times = "none was started over" if not again else f"they were started over {again} times in all"
    first, last = _day(rounds[0].recorded_at), _day(rounds[-1].recorded_at)
    days = f"on {first}" if first == last else f"from {first} to {last}"
    counted = "1 round" if len(rounds) == 1 else f"{len(rounds):,} rounds"
    yield element("p", f"{counted} {days}; {times}.")
    if account.hides_cohort:
        yield element(
            "p",
            "How many devices took part, what they sent and how long a round took are held back: "
            "the guarantee covers released models, and no noise covers these.",
        )
    sent, received = account.status.sent_bytes, account.status.received_bytes
    if sent or received:
        out, back = f"{sent / 1e6:,.4g} MB of models", f"{received / 1e6:,.4g} MB of updates"
        yield element("p", f"Since the coordinator's start {out} went out and {back} came in.")
    yield from sections(
        [Course("", 0, [(one.round_number, _figures(one, account)) for one in rounds])]
    )


def _figures(summary: ReleaseSummary, account: Account) -> dict[str, Metric]:
    """Return what is shown of a round by figure."""
    if account.hides_cohort:
        return {name: value for name, value in summary.metrics.items() if not _counts(name)}
    figures = {**summary.metrics, "duration_s": summary.duration_s}
    if summary.contribution_count is not None:
        figures["contributions"] = summary.contribution_count
    if summary.round_number in account.update_bytes:
        figures["update_bytes"] = account.update_bytes[summary.round_number]
    return figures


def _counts(name: str) -> bool:
    return name in _COUNTS or name.startswith(_COUNTS_OF)


def _refused(account: Account) -> Iterator[Html]:
    if account.hides_cohort:
        yield element("p", "Held back: how many devices refused would tell how many were drawn.")
        return
    in_rounds: dict[str, int] = {}
    for summary in account.rounds:
        for name, count in summary.metrics.items():
            if name.startswith(_REFUSED) and isinstance(count, int):
                code = name.removeprefix(_REFUSED)
                in_rounds[code] = in_rounds.get(code, 0) + count
    since_start = account.status.refusals
    codes = sorted({*in_rounds, *since_start}, key=lambda code: (-in_rounds.get(code, 0), code))
    if not codes:
        yield element("p", "No plan and no upload was refused.")
        return
    yield table(
        ("code", "what to do", "in released rounds", "since the coordinator's start"),
        [
            (
                element("code", code),
                remedy(code),
                str(in_rounds.get(code, 0)),
                str(since_start.get(code, 0)) if account.status.is_running else "not running",
            )
            for code in codes
        ],
        words=2,
    )


def _models(account: Account) -> Iterator[Html]:
    hosts, listen = account.config.listen.advertised_hosts, account.config.listen
    port, by_round = (
        listen.devices.rpartition(":")[2],
        {one.round_number: one for one in account.rounds},
    )
    pointed = [(name, by_round[at]) for name, at in account.pointed.items() if at in by_round]
    yield facts(
        [
            ("devices fetch from", f"{' or '.join(hosts)}, port {port}"),
            ("files", element("code", str(account.folder / "releases"))),
            ("starting model", account.config.start_from or "drawn from the seed"),
            *((name, _model(release)) for name, release in pointed),
        ]
    )
    if not account.rounds:
        yield element("p", "No model was released yet: the first start publishes round 0.")
        return
    shown = sorted({*account.kept[-_MOST_MODELS:], 0} & by_round.keys(), reverse=True)
    yield table(
        ("SHA-256 of parameters", "released", "round"),
        [
            (
                element("code", f"{release.parameters_sha256.hex()[:16]}…"),
                _day(release.recorded_at)
                + ("" if number in account.kept else ", files deleted since"),
                str(number),
            )
            for number, release in ((number, by_round[number]) for number in shown)
        ],
        words=2,
    )
    if len(account.kept) > _MOST_MODELS:
        yield element("p", f"The folder keeps {len(account.kept)} models; the newest are shown.")


def _model(release: ReleaseSummary) -> Html:
    digest = element("code", release.parameters_sha256.hex())
    return Html(f"round {release.round_number}, SHA-256 of its parameters {digest}")


def _day(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).date().isoformat()
