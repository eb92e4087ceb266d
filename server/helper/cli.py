"""Run ``sotto-helper``: make a helper, have it admitted, let it answer, compare its answers."""

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from privacy.foundation.command_exit import command, failed
from privacy.foundation.flags import Flag, command_line, read_arguments
from privacy.foundation.toml_schema import schema_command
from privacy.foundation.whole_number_flags import at_least_one
from privacy.identities.certificates import CertificateError
from privacy.identities.helper_admission import HelperRequest
from privacy.identities.keys import KeyFileError
from privacy.masking.helper_answer import AnswerError, encode_line, read_answers
from server.helper.answers import AnswerStoreError
from server.helper.comparing import answers_of, compare
from server.helper.folder import (
    HelperFolder,
    HelperFolderError,
    admit_helper,
    found_helper,
    read_authority_file,
    renew_helper,
)
from server.helper.newest_issuer import NewestIssuerError
from server.helper.reporting import report_of
from server.helper.settings import HelperSettings

_FAILURES = (
    AnswerError,
    AnswerStoreError,
    CertificateError,
    HelperFolderError,
    KeyFileError,
    NewestIssuerError,
    OSError,
    ValueError,
)


class OnHelper(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a command on a helper.

    Attributes:
        folder: The helper's folder.
    """

    folder: Annotated[Path, Flag("DIR", positional=True)]

    @property
    def helper(self) -> HelperFolder:
        """Return the folder's places."""
        return HelperFolder(self.folder.absolute())


class NewHelper(OnHelper, frozen=True, kw_only=True):
    """A helper to make.

    Attributes:
        authority: The authority's certificate, PEM, from the federation but not by way of its
            coordinator: the only authority that the helper believes.
        hostname: Name or address under which the coordinator reaches this machine; may be repeated.
        listen: Where to wait for the coordinator, host:port.
        least_contributors: Fewest devices whose masks are summed; at least 2.
        largest_rounds_a_day: Most attempts at rounds that are answered in 24 hours.
    """

    authority: Annotated[Path, Flag("FILE")]
    hostname: Annotated[list[str], Flag("HOST")]
    listen: Annotated[str, Flag("HOST:PORT")] = "0.0.0.0:7450"
    least_contributors: Annotated[int, Flag("DEVICES", parse=at_least_one)]
    largest_rounds_a_day: Annotated[int, Flag("ROUNDS", parse=at_least_one)]


class Renewal(OnHelper, frozen=True, kw_only=True):
    """Keys to replace.

    Attributes:
        authority: The certificate, PEM, of the authority that the federation has moved to.
    """

    authority: Annotated[Path | None, Flag("FILE")] = None


class Admission(OnHelper, frozen=True, kw_only=True):
    """Certificates to take.

    Attributes:
        certificates: What `sotto-server admit-helper` wrote.
    """

    certificates: Annotated[Path, Flag("FILE", positional=True)]


class HelperStatus(OnHelper, frozen=True, kw_only=True):
    """A report of a helper.

    Attributes:
        json: Print JSON instead of text.
    """

    json: bool = False


class Kept(OnHelper, frozen=True, kw_only=True):
    """A list to take answers from.

    Attributes:
        answers: The coordinator's list, DIR/helper-answers.jsonl of its federation.
    """

    answers: Annotated[Path, Flag("FILE", positional=True)]


class TwoLists(msgspec.Struct, frozen=True, kw_only=True):
    """Two lists to compare.

    Attributes:
        helper_list: The helper's folder, or a file that `sotto-helper ledger` printed.
        coordinator_list: The coordinator's list, helper-answers.jsonl of its federation.
        authority: The authority's certificate, PEM (default: the one in the helper's folder); may
            be repeated for those that the federation had before.
    """

    helper_list: Annotated[Path, Flag("HELPER", positional=True)]
    coordinator_list: Annotated[Path, Flag("COORDINATOR", positional=True)]
    authority: Annotated[list[Path], Flag("FILE")] = []


@command("sotto-helper")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    parser = command_line(
        "sotto-helper",
        "Be the second party of masked sums: sum the masks of a federation's devices, never see an "
        "update.",
        (
            *(_init, _renew, _admit, _run, _status, _ledger, _verify, _recover),
            schema_command("helper.toml", lambda: HelperSettings),
        ),
        allow_abbrev=False,
    )
    arguments = read_arguments(parser, argv)
    try:
        return int(arguments.handler(arguments.settings) or 0)
    except ModuleNotFoundError as error:
        print(f"sotto-helper: {error.name} is missing; install sotto[helper]", file=sys.stderr)
        return 1
    except _FAILURES as error:
        return failed("sotto-helper", error)


def _init(asked: NewHelper) -> None:
    """Make a helper's folder, its keys and a request for certificates."""
    settings = HelperSettings(
        listen=asked.listen,
        least_contributors=asked.least_contributors,
        largest_rounds_a_day=asked.largest_rounds_a_day,
    )
    request = found_helper(asked.helper, asked.authority, asked.hostname, settings)
    print(f"made a helper in {asked.folder}")
    print(f"it believes the authority {request.authority_sha256}: compare that with the federation")
    _print_request(asked.helper, request)


def _renew(asked: Renewal) -> None:
    """Make new keys and a request for them; those in use stay until admit.

    Do so once a year, before the certificates end, after a theft, and when the federation has moved
    to another authority. What was sealed for the keys before still opens until the next renewal.
    """
    _print_request(asked.helper, renew_helper(asked.helper, asked.authority))


def _print_request(helper: HelperFolder, request: HelperRequest) -> None:
    print(f"next: send {helper.request} to whoever holds the authority's key, and tell them")
    print(f"in another way that it is {request.sha256}; they run `sotto-server admit-helper`,")
    print("and you `sotto-helper admit` with what it wrote")


def _admit(asked: Admission) -> None:
    """Take the certificates for the newest request."""
    identity = admit_helper(asked.helper, asked.certificates, now=time.time())
    print(f"admitted; the wrapping key's certificate is {identity.wrapping.certified.sha256.hex()}")
    print("tell it to the devices' owners when they ask: their floor pins it")
    print(f"next: sotto-helper run {asked.folder}, again if it runs already")


def _run(asked: OnHelper) -> None:
    """Answer the coordinator until SIGTERM."""
    # Here, because gRPC and numpy take a moment that other commands need not wait for.
    from server.helper.running import run_helper

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    report = report_of(asked.helper, now=time.time())

    def on_ready(port: int) -> None:
        print(f"helper on port {port}")
        print(f"certificates end at {report.certificates_end_at}", flush=True)

    asyncio.run(run_helper(asked.helper, on_ready=on_ready))


def _status(asked: HelperStatus) -> None:
    """Say what a helper may be asked, and what it has answered."""
    report = report_of(asked.helper, now=time.time())
    if asked.json:
        print(msgspec.json.encode(report).decode())
        return
    for line in report.lines():
        print(line)


def _ledger(asked: OnHelper) -> None:
    """Print everything that was answered, oldest first, one line of JSON each.

    Anybody can compare it with the coordinator's list (`sotto-helper verify`).
    """
    for signed in answers_of(asked.helper.root):
        print(encode_line(signed).decode(), end="")


def _verify(asked: TwoLists) -> int:
    """Check a helper's list and the coordinator's, and that both are the same.

    Exit status 1 if they differ.
    """
    if not asked.authority and not asked.helper_list.is_dir():
        raise ValueError(
            f"{asked.helper_list} is no helper's folder: give the authority's certificate with "
            "--authority"
        )
    files = asked.authority or [HelperFolder(asked.helper_list).authority]
    authorities = [read_authority_file(path) for path in files]
    found = compare(asked.helper_list, asked.coordinator_list, authorities)
    print(f"run {found.run}: both lists have {found.common} answers in common")
    print(
        f"they hold sums of {found.attempts} attempts at rounds: `sotto-server ledger` must have "
        "as many events masked-attempt or more, or the epsilon that it tells is too low"
    )
    if found.only_helper:
        print(
            f"the coordinator's list lacks the last {found.only_helper}: it asked for sums that it "
            "does not show, or was put back from an old backup, or was killed before it kept them, "
            "and its next round fetches them"
        )
    if found.only_coordinator:
        print(
            f"the helper's list lacks the last {found.only_coordinator}: it was put back from an "
            "old backup; `sotto-helper recover` adds them"
        )
    return 0 if found.agree else 1


def _recover(asked: Kept) -> None:
    """Add the answers that a helper's list lacks since it was put back from a backup.

    A helper refuses to answer while the coordinator holds an answer of its that it does not know.
    """
    helper = asked.helper
    with helper.only_one():
        answers = helper.open_answers(helper.read_settings())
        kept = read_answers(asked.answers)
        count = answers.take_back(kept, authority=helper.read_authority())
    print(f"added {count} answers; nothing that they answered is answered again")


if __name__ == "__main__":
    sys.exit(main())
