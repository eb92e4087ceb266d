"""The coordinator's list of what the helper answered."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from privacy.masking.helper_answer import (
    Answer,
    AnswerError,
    SignedAnswer,
    encode_line,
    first_head,
    sign_answer,
)
from server.records.helper_answers import HelperAnswers
from server.records.tenure import Tenure

RUN = b"r" * 16


class Signer:
    """A helper that signs whatever it is told."""

    def __init__(self, root: Path) -> None:
        self.authority = CertificateAuthority.create(root / "authority", RUN.hex())
        requests = Identity.create_requests(root / "helper", "helper")
        issued = self.authority.issue_all(requests, name="helper", role="helper")
        self.identity = Identity.install(
            root / "helper", issued, ca=self.authority.certificate, role="helper", now=time.time()
        )

    def answers(self, *rounds: int, run: bytes = RUN) -> list[SignedAnswer]:
        signed: list[SignedAnswer] = []
        for sequence, round_number in enumerate(rounds, 1):
            answer = Answer(
                sequence=sequence,
                run=run,
                round_number=round_number,
                attempt=0,
                group=0,
                groups=1,
                element_count=4,
                bits=16,
                set_sha256=bytes(32),
                sum_sha256=bytes(32),
                recorded_ms=1,
                previous_sha256=signed[-1].sha256 if signed else first_head(run),
            )
            signed.append(sign_answer(answer, self.identity))
        return signed


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


def listed(path: Path, signer: Signer) -> HelperAnswers:
    return HelperAnswers(path, authorities=[signer.authority.certificate], run=RUN)


def test_what_was_kept_is_there_after_a_restart(tmp_path: Path, signer: Signer) -> None:
    answers = signer.answers(1, 2, 3)
    kept = listed(tmp_path / "kept", signer)
    kept.append(answers[:1])
    kept.append(answers[1:])

    again = listed(tmp_path / "kept", signer)

    assert len(again) == 3
    assert again.newest == answers[2]
    assert all(again.holds(answer) for answer in answers)


def test_a_line_that_was_cut_short_is_dropped(tmp_path: Path, signer: Signer) -> None:
    answers = signer.answers(1, 2)
    listed(tmp_path / "kept", signer).append(answers)
    whole = (tmp_path / "kept").read_bytes()
    for cut in (1, 500, len(encode_line(answers[1]))):
        (tmp_path / "kept").write_bytes(whole[:-cut])

        kept = listed(tmp_path / "kept", signer)

        assert kept.newest == answers[0]
        kept.append(answers[1:])
        assert (tmp_path / "kept").read_bytes() == whole


def test_a_list_that_was_changed_is_refused(tmp_path: Path, signer: Signer) -> None:
    lines = [encode_line(answer) for answer in signer.answers(1, 2, 3)]
    for changed in (lines[1:], [lines[0], lines[2]], lines[::-1], [b"{}\n", *lines[1:]]):
        (tmp_path / "kept").write_bytes(b"".join(changed))
        with pytest.raises(AnswerError):
            listed(tmp_path / "kept", signer)


def test_only_the_helpers_own_answers_of_this_run_are_kept(tmp_path: Path, signer: Signer) -> None:
    good = signer.answers(1)[0]
    other = Signer(tmp_path / "other").answers(1)[0]
    kept = listed(tmp_path / "kept", signer)

    forged = good._replace(statement=other.statement[:-1] + b"x")
    for answers in (signer.answers(1, run=bytes(16)), [other], [forged], signer.answers(1, 1)):
        with pytest.raises(AnswerError):
            kept.append(answers)

    assert len(kept) == 0


def test_two_answers_in_one_place_are_found(tmp_path: Path, signer: Signer) -> None:
    kept = listed(tmp_path / "kept", signer)
    kept.append(signer.answers(1))

    with pytest.raises(AnswerError, match="two answers"):
        kept.holds(signer.answers(2)[0])


def test_a_list_outlives_the_authority_that_certified_its_helper(
    tmp_path: Path, signer: Signer
) -> None:
    new = Signer(tmp_path / "new")
    first = signer.answers(1)
    authorities = [new.authority.certificate, signer.authority.certificate]
    HelperAnswers(tmp_path / "kept", authorities=authorities[1:], run=RUN).append(first)

    # The same run, whose helper was admitted by the next authority.
    kept = HelperAnswers(tmp_path / "kept", authorities=authorities, run=RUN)
    second = first[0].answer._replace(sequence=2, round_number=2, previous_sha256=first[0].sha256)
    kept.append([sign_answer(second, new.identity)])

    assert len(HelperAnswers(tmp_path / "kept", authorities=authorities, run=RUN)) == 2
    with pytest.raises(AnswerError, match="cannot be trusted"):
        HelperAnswers(tmp_path / "kept", authorities=authorities[:1], run=RUN)


def test_an_answer_of_a_coordinator_that_woke_up_late_is_not_in_the_list(
    tmp_path: Path, signer: Signer
) -> None:
    answers = signer.answers(1, 2)
    authorities = [signer.authority.certificate]

    def take_over() -> None:
        kept = HelperAnswers(tmp_path / "kept", authorities=authorities, run=RUN, tenure=Tenure(6))
        kept.append(answers[1:])

    # Stopped after it has opened the file and has looked at its clock.
    meanwhile: list[Callable[[], None]] = []

    def check() -> None:
        if meanwhile:
            meanwhile.pop()()

    late = HelperAnswers(
        tmp_path / "kept", authorities=authorities, run=RUN, tenure=Tenure(5, check)
    )
    late.append(answers[:1])
    meanwhile.append(take_over)
    late.append(answers[1:])

    again = listed(tmp_path / "kept", signer)

    assert len(again) == 2
