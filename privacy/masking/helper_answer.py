"""What a helper answers, signed and chained, so that two lists of answers can be compared by
anyone.

Each statement names the digest of the one before it; the chain begins at the run's own name. The
coordinator keeps every answer that it gets. An answer that one of both lists lacks, or two answers
for one group of one attempt, cannot be explained away: the helper signed each. A statement names no
device and no count: its set is a digest over random nonces and sealed seeds.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from privacy.foundation.strict_json import decode_json
from privacy.identities.certificates import CertificateError, CertifiedKey, KeyUse
from privacy.identities.helper_admission import check_helper_key
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose, SignatureError, verify

_START = b"sotto helper answers 1\0"
_ENTRY = b"sotto helper answer 1\0"
_SET = b"sotto masked set 1\0"
# Statement, signature and certificate have 2 kB; in base64 3.
_LONGEST_LINE = 16 << 10
_FIELDS = struct.Struct("!Q16sIIIIQB32s32sQ32s")
_MEMBER = struct.Struct("!I16s32s")


class AnswerError(Exception):
    """Raised when a helper's answer, or a list of them, cannot be trusted; the text says why."""


class Answer(NamedTuple):
    """A helper's statement of one sum, in wire order.

    Attributes:
        sequence: Place in the helper's list, from 1.
        run: Identifier of the run, 16 bytes.
        attempt: Attempt at the round, from 0.
        group: Group of the cohort, from 0.
        groups: Groups of the cohort.
        element_count: Elements of the sum.
        bits: Width of an element.
        set_sha256: Digest of the members (`set_digest`), 32 bytes.
        sum_sha256: SHA-256 of the packed sum, 32 bytes.
        recorded_ms: Milliseconds since 1970 UTC by the helper's clock.
        previous_sha256: Digest of the answer before, 32 bytes; `first_head` before the first.
    """

    sequence: int
    run: bytes
    round_number: int
    attempt: int
    group: int
    groups: int
    element_count: int
    bits: int
    set_sha256: bytes
    sum_sha256: bytes
    recorded_ms: int
    previous_sha256: bytes

    @property
    def question(self) -> tuple[int, int, int]:
        """Return round, attempt and group, for which there is one answer."""
        return self.round_number, self.attempt, self.group


class SignedAnswer(NamedTuple):
    """An answer as it travels and is kept.

    Attributes:
        statement: The packed `Answer`.
        signature: The helper's, over the statement.
        certificate: The helper's signing certificate, DER.
    """

    statement: bytes
    signature: bytes
    certificate: bytes

    @property
    def answer(self) -> Answer:
        """Return what the statement says, unchecked; AnswerError if it cannot be read."""
        try:
            return Answer(*_FIELDS.unpack(self.statement))
        except struct.error:
            raise AnswerError("a helper's answer has another format") from None

    @property
    def sha256(self) -> bytes:
        """Return the digest that the next answer names, 32 bytes."""
        return hashlib.sha256(_ENTRY + self.statement).digest()

    def check(self, *, authorities: Sequence[bytes], run: bytes) -> Answer:
        """Return what the statement says after checking that the federation's helper signed it.

        ``authorities`` are certificates, DER: the federation's, and those it had before. Dates are
        not looked at, for a signature outlives its key.

        Raises:
            AnswerError: If the helper did not sign it, or the answer is of another run.
        """
        answer = self.answer
        try:
            signer = _signer(self.certificate, tuple(authorities))
            verify(signer.public_key, self.statement, self.signature, purpose=Purpose.HELPER_ANSWER)
        except (CertificateError, SignatureError) as error:
            raise AnswerError(f"answer {answer.sequence} cannot be trusted: {error}") from None
        if answer.run != run:
            raise AnswerError(
                f"answer {answer.sequence} must be of run {run.hex()}, got {answer.run.hex()}"
            )
        return answer


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    statement: bytes
    signature: bytes
    certificate: bytes


class SetMember(NamedTuple):
    """What a set's digest is over; ``sealed_sha256`` is SHA-256 of the sealed seed, 32 bytes."""

    slot: int
    lease_nonce: bytes
    sealed_sha256: bytes


def set_digest(members: Iterable[SetMember]) -> bytes:
    """Return the digest of a set, in whatever order its members come, 32 bytes."""
    whole = hashlib.sha256(_SET)
    for member in sorted(members):
        whole.update(_MEMBER.pack(*member))
    return whole.digest()


def first_head(run: bytes) -> bytes:
    """Return the digest that a run's first answer follows, 32 bytes."""
    return hashlib.sha256(_START + run).digest()


def sign_answer(answer: Answer, helper: Identity) -> SignedAnswer:
    """Return an answer with the helper's signature."""
    statement = _FIELDS.pack(*answer)
    signature = helper.sign(statement, purpose=Purpose.HELPER_ANSWER)
    return SignedAnswer(statement, signature, helper.signing.certified.der)


def check_list(
    answers: Sequence[SignedAnswer],
    *,
    authorities: Sequence[bytes],
    run: bytes,
    after: SignedAnswer | None = None,
) -> None:
    """Check every answer of a list, oldest first, and that each follows the one before.

    ``authorities`` are those of `SignedAnswer.check`. ``after`` is the answer before the first,
    already checked; None if that is the run's first.

    Raises:
        AnswerError: If an answer is not the helper's, was dropped or moved, or answers again.
    """
    sequence = 0 if after is None else after.answer.sequence
    head = first_head(run) if after is None else after.sha256
    answered: set[tuple[int, int, int]] = set()
    for signed in answers:
        answer = signed.check(authorities=authorities, run=run)
        sequence += 1
        if answer.sequence != sequence or answer.previous_sha256 != head:
            raise AnswerError(f"answer {sequence} is missing, was moved, or does not follow")
        if answer.question in answered:
            raise AnswerError(
                f"round {answer.round_number}, attempt {answer.attempt}, group {answer.group} was "
                "answered twice"
            )
        answered.add(answer.question)
        head = signed.sha256


def encode_line(signed: SignedAnswer) -> bytes:
    """Return an answer as one line of JSON, with its line end."""
    return msgspec.json.encode(_Line(**signed._asdict())) + b"\n"


def decode_line(line: bytes) -> SignedAnswer:
    """Return what `encode_line` wrote, unchecked; AnswerError if the line is damaged."""
    try:
        return SignedAnswer(
            *msgspec.structs.astuple(decode_json(line, _Line, at_most=_LONGEST_LINE))
        )
    except msgspec.DecodeError as error:
        raise AnswerError(f"a helper's answer cannot be read: {error}") from None


def read_answers(path: Path) -> list[SignedAnswer]:
    """Return a file of answers, unchecked; AnswerError for a damaged line, OSError as `open`."""
    with path.open("rb") as file:
        # No further than a line may be long: the file is somebody else's.
        return [decode_line(line) for line in iter(lambda: file.readline(_LONGEST_LINE), b"")]


# A list of thousands names one certificate, or a few.
@lru_cache(8)
def _signer(certificate: bytes, authorities: tuple[bytes, ...]) -> CertifiedKey:
    """Return a helper's signing key that one of the authorities certified; or CertificateError."""
    refused = CertificateError("there is no authority to check it by")
    for authority in authorities:
        try:
            return check_helper_key(certificate, authority=authority, use=KeyUse.SIGNING, now=None)
        except CertificateError as error:
            refused = error
    raise refused
