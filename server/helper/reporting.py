"""What a helper's owner is told of it, whether or not it runs."""

from datetime import UTC, datetime

import msgspec

from privacy.identities.certificates import fingerprint
from privacy.identities.helper_admission import run_of
from privacy.identities.party import Identity
from server.helper.folder import HelperFolder, HelperFolderError


class HelperReport(msgspec.Struct, frozen=True, kw_only=True):
    """A helper's state.

    Attributes:
        run: Identifier of the run, 32 hex digits.
        authority_sha256: Hex digest of the authority that it believes.
        certificates_end_at: When its certificates end, UTC; None before it was admitted.
        answers: Answers in its list.
        newest: Round, attempt and group of the newest answer; None if there is none.
        rounds_today: Attempts at rounds that were answered in the last 24 hours.
    """

    run: str
    authority_sha256: str
    is_running: bool
    listen: str
    least_contributors: int
    largest_rounds_a_day: int
    certificates_end_at: str | None
    answers: int
    newest: tuple[int, int, int] | None
    rounds_today: int

    def lines(self) -> list[str]:
        """Return the report as lines for people."""
        newest = "none"
        if self.newest is not None:
            newest = "round {}, attempt {}, group {}".format(*self.newest)
        return [
            f"run           {self.run}",
            f"authority     {self.authority_sha256}",
            f"state         {'running' if self.is_running else 'stopped'}, {self.listen}",
            f"certificates  {self.certificates_end_at or 'none: it was not admitted yet'}",
            f"answers       {self.answers}, newest: {newest}",
            f"today         {self.rounds_today} of {self.largest_rounds_a_day} rounds",
            f"devices       at least {self.least_contributors} a sum",
        ]


def report_of(folder: HelperFolder, *, now: float) -> HelperReport:
    """Return a helper's state at ``now``, Unix seconds; raises as the parts of its folder."""
    settings = folder.read_settings()
    authority = folder.read_authority()
    answers = folder.open_answers(settings)
    listed = answers.listed()
    return HelperReport(
        run=run_of(authority).hex(),
        authority_sha256=fingerprint(authority).hex(),
        is_running=_is_running(folder),
        listen=settings.listen,
        least_contributors=settings.least_contributors,
        largest_rounds_a_day=settings.largest_rounds_a_day,
        certificates_end_at=_end(folder),
        answers=len(listed),
        newest=listed[-1].answer.question if listed else None,
        rounds_today=answers.rounds_today(int(now * 1000)),
    )


def _end(folder: HelperFolder) -> str | None:
    if not Identity.exists(folder.identity):
        return None
    identity = Identity.load(folder.identity)
    pairs = (identity.tls, identity.wrapping, identity.signing)
    end = min(pair.certified.not_after for pair in pairs)
    return datetime.fromtimestamp(end, UTC).isoformat(timespec="minutes")


def _is_running(folder: HelperFolder) -> bool:
    try:
        with folder.only_one():
            return False
    except HelperFolderError:
        return True
