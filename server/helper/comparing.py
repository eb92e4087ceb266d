"""Compare two lists of a helper's answers: its own, and what the coordinator kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from privacy.identities.helper_admission import run_of
from privacy.masking.helper_answer import AnswerError, SignedAnswer, check_list, read_answers
from server.helper.folder import HelperFolder


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What two lists have in common, and what one of them lacks.

    Attributes:
        run: Identifier of the run, 32 hex digits.
        common: Answers that both have.
        only_helper: Answers that the coordinator did not keep.
        only_coordinator: Answers that the helper's list lacks.
        attempts: Attempts at rounds of which a list shows a sum; each costs epsilon against the
            coordinator.
    """

    run: str
    common: int
    only_helper: int
    only_coordinator: int
    attempts: int

    @property
    def agree(self) -> bool:
        """Return whether both lists are the same."""
        return not (self.only_helper or self.only_coordinator)


def compare(helper_list: Path, coordinator_list: Path, authorities: Sequence[bytes]) -> Comparison:
    """Check both lists and compare them.

    ``authorities`` are certificates, DER: the federation's first, then those it had before.

    Raises:
        AnswerError: If a list is damaged, not this helper's, or the two contradict each other.
        OSError: If a file cannot be read.
    """
    run = run_of(authorities[0])
    lists = [answers_of(helper_list), read_answers(coordinator_list)]
    for name, answers in zip(("the helper's list", "the coordinator's list"), lists, strict=True):
        try:
            check_list(answers, authorities=authorities, run=run)
        except AnswerError as error:
            raise AnswerError(f"{name}: {error}") from None
    common = min(len(answers) for answers in lists)
    for mine, theirs in zip(*lists, strict=False):
        # What each question was answered is what is chained: signatures may differ in their salt.
        if mine.statement != theirs.statement:
            raise AnswerError(
                f"answer {mine.answer.sequence} differs: the helper signed two, one for each list"
            )
    return Comparison(
        run=run.hex(),
        common=common,
        only_helper=len(lists[0]) - common,
        only_coordinator=len(lists[1]) - common,
        attempts=len({one.answer.question[:2] for answers in lists for one in answers}),
    )


def answers_of(place: Path) -> list[SignedAnswer]:
    """Return the answers of a helper's folder, or of a file that `sotto-helper ledger` printed."""
    if not place.is_dir():
        return read_answers(place)
    folder = HelperFolder(place)
    return folder.open_answers(folder.read_settings()).listed()
