"""Show an operator where a run stands: as tables for people, as JSON for scripts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from protos import federation_pb2 as pb
from server.aggregation.noised_sums import WEIGHTS_FIGURE
from server.config.settings import FederationSettings
from server.devices.clients import ClientSummary
from server.releases.publishing import ReleaseSummary

# Beside a column of its own, or too long for one.
_UNTABLED = {"contributions", WEIGHTS_FIGURE}

# The devices have a table of their own, and the epsilons stand in words.
_NOT_IN_TABLE = ("clients", "epsilons")
_ONLY_IF_TOLD = (
    "growth",
    "shortage",
    "spent",
    "helper",
    "leader",
    "leads_since",
    "term",
    "refusals",
    "device_versions",
    "received_bytes",
    "sent_bytes",
)


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``sotto-server status``.

    Attributes:
        run: Identifier of the run, 32 hex digits.
        phase: Where the round stands; ``stopped`` when nobody serves, ``standby`` if this machine's
            coordinator stands by, ``elsewhere`` if none runs here and another machine's leads.
        leader: Host name of who leads, where several may share a store; empty if nobody does.
        leads_since: When it began to, ISO 8601 UTC.
        term: How often one began to lead; 0 where one machine alone can.
        round_number: Round that is open or comes next.
        guarantee: The promise of the noise mode, in words.
        personalisation: The method, and what travels under it.
        growth: Stage and layers of a model that grows, else empty.
        shortage: Why the enrolled devices make no round, and the remedy; empty if they do, or when
            nobody serves.
        spent: Epsilon against readers and against the coordinator after the newest attempt, in
            words; empty before the first one, where nothing is promised, or when nobody serves.
        helper: Whether the helper of masked sums can be reached; empty without masks, or when
            nobody serves.
        enrolled_clients: Devices that may be drawn.
        connected_clients: Devices whose stream is open.
        leased_clients: Connected devices that work on the round.
        committed_clients: Devices whose update is in.
        refusals: Refused plans and uploads since the coordinator's start, by code; none is told
            under a guarantee, or when nobody serves.
        device_versions: Connected devices by the version of their software.
        received_bytes: Bytes of updates that came since the coordinator's start; told as refusals.
        sent_bytes: Bytes of models that went since then.
        epsilons: ``spent`` as numbers, by onlooker; without those that nothing is promised against.
        remaining_s: Seconds until the round closes; 0 when none is open.
        software_version: Version of the serving process, or of this one.
        certificates_end_at: Expiry of the coordinator's certificates, ISO 8601 UTC.
        issuer_ends_at: The same of what certifies them and devices: the issuing key, or the
            authority where there is none.
    """

    run: str
    is_running: bool
    phase: str
    round_number: int
    is_paused: bool
    guarantee: str
    personalisation: str
    growth: str
    shortage: str = ""
    spent: str = ""
    helper: str = ""
    enrolled_clients: int
    connected_clients: int = 0
    leased_clients: int = 0
    committed_clients: int = 0
    refusals: dict[str, int] = {}
    device_versions: dict[str, int] = {}
    received_bytes: int = 0
    sent_bytes: int = 0
    epsilons: dict[str, float] = {}
    remaining_s: float = 0.0
    software_version: str
    certificates_end_at: str
    issuer_ends_at: str
    leader: str = ""
    leads_since: str = ""
    term: int = 0
    clients: list[ClientSummary] = []


def from_answer(
    answer: pb.StatusResponse,
    clients: list[ClientSummary],
    certificates_end_at: str,
    issuer_ends_at: str,
) -> StatusReport:
    """Return the report of a running coordinator."""
    return StatusReport(
        run=answer.run,
        is_running=True,
        phase=answer.phase,
        round_number=answer.round_number,
        is_paused=answer.paused,
        guarantee=answer.guarantee,
        personalisation=answer.personalisation,
        growth=answer.growth,
        shortage=answer.shortage,
        spent=answer.spent,
        helper=answer.helper,
        enrolled_clients=answer.enrolled_clients,
        connected_clients=answer.connected_clients,
        leased_clients=answer.leased_clients,
        committed_clients=answer.committed_clients,
        refusals=dict(answer.refusals),
        device_versions=dict(answer.device_versions),
        received_bytes=answer.received_bytes,
        sent_bytes=answer.sent_bytes,
        epsilons=dict(answer.epsilons),
        remaining_s=answer.remaining_ms / 1000,
        software_version=answer.software_version,
        certificates_end_at=certificates_end_at,
        issuer_ends_at=issuer_ends_at,
        clients=clients,
    )


def languages_told(languages: Sequence[str], founded: FederationSettings) -> list[str]:
    """Return lines on the word list of a new federation's languages, and what it starts from."""
    told, name = ",".join(languages), Path(founded.word_list.path or "")
    lines = [
        f"words: {name.name} there, made from the data of wordfreq under CC BY-SA 4.0;",
        f"pass {name.stem}.NOTICE on with it",
    ]
    if founded.start_from is None:
        lines += [
            f"no start of language {told} ships with sotto: it begins with drawn parameters;",
            f"`sotto-simulate start --language {told}` learns one from public text, for --start",
        ]
    return lines


def print_status(report: StatusReport) -> None:
    """Print the report as a table, and the devices below it."""
    table = Table(show_header=False, box=None)
    for name, value in msgspec.structs.asdict(report).items():
        if name not in _NOT_IN_TABLE and (name not in _ONLY_IF_TOLD or value):
            table.add_row(name.replace("_", " "), _text(value))
    console = Console()
    console.print(table)
    if report.clients:
        console.print(_clients(report.clients))


def print_rounds(rounds: list[ReleaseSummary]) -> None:
    """Print released rounds as a table, with a column for each figure."""
    names = sorted({name for summary in rounds for name in summary.metrics} - _UNTABLED)
    table = Table()
    for title in ("round", "attempt", "updates", "seconds", "model", *names):
        table.add_column(title.replace("_", " "), justify="right")
    for summary in rounds:
        table.add_row(
            str(summary.round_number),
            str(summary.attempt),
            _text(summary.contribution_count),
            f"{summary.duration_s:.2f}",
            summary.parameters_sha256.hex()[:12],
            *(_text(summary.metrics.get(name)) for name in names),
        )
    Console().print(table)


# Any: a flat JSON object.
def round_as_json(summary: ReleaseSummary) -> dict[str, Any]:
    """Return a released round as plain values; digests in hex."""
    return {
        "round_number": summary.round_number,
        "attempt": summary.attempt,
        "contributions": summary.contribution_count,
        "model_sha256": summary.parameters_sha256.hex(),
        "duration_s": summary.duration_s,
        "metrics": summary.metrics,
    }


def _clients(clients: list[ClientSummary]) -> Table:
    table = Table("device", "rounds", "state")
    for client in clients:
        state = "enrolled" if client.revoked_at is None else "revoked"
        table.add_row(client.name, _text(client.participation_count), state)
    return table


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case dict():
            return ", ".join(f"{name} {count}" for name, count in sorted(value.items()))
        case _:
            return str(value)
