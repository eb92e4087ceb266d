"""Ask the helper for the sum of a set's keystreams, and keep its signed answer.

The caller gets a sum that the helper signed for exactly this set, or one of two errors: the helper
says no, or it did not answer in time. Nothing is lost by asking again: the same set has the same
answer, whatever happened to either process in between.
"""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import grpc

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import certificate_pem
from privacy.identities.helper_admission import caller_keys
from privacy.masking.helper_answer import (
    Answer,
    AnswerError,
    SetMember,
    SignedAnswer,
    set_digest,
)
from privacy.masking.mask_form import MaskTerms
from privacy.masking.packing import packed_bytes
from protos import helper_pb2 as pb
from protos.helper_pb2_grpc import HelperStub
from protos.helper_refusals import ASK_AGAIN, LINES, SLOTS_KEY, HelperCode
from protos.refusals import CODE_KEY
from protos.version import HELPER_VERSION
from server.records.helper_answers import HelperAnswers
from server.records.threads import Threads

if TYPE_CHECKING:
    # Known to type checkers alone.
    from protos.helper_pb2_grpc import HelperAsyncStub

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
_SLOT_BYTES = 4
_Call: TypeAlias = "grpc.aio.StreamStreamCall[pb.UnmaskRequest, pb.UnmaskResponse]"
_OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 25_000),
    ("grpc.http2.max_pings_without_data", 0),
    # The pauses here are enough; gRPC's own would only add to them.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class HelperRefusedError(Exception):
    """Raised when the helper says no.

    Attributes:
        code: A `protos.helper_refusals.HelperCode`, or a newer helper's.
        slots: Slots whose updates cannot be unmasked; leave them out and ask for the rest. Empty
            where the whole set is refused. At most 256 are named at a time.
    """

    def __init__(self, code: str, slots: Sequence[int] = ()) -> None:
        self.code = code
        self.slots = tuple(slots)
        known = code in HelperCode.__members__.values()
        super().__init__(LINES[HelperCode(code)] if known else f"the helper refused: {code}")


class HelperAwayError(Exception):
    """Raised when the helper could not be reached, or did not answer, in time."""


class MaskedMember(NamedTuple):
    """One update of a set.

    Attributes:
        slot: The client's slot.
        lease_nonce: 16 bytes.
        sealed_seed: As the device sealed it.
        signing_certificate: The device's, a chain in DER, with whose key the seed was signed.
    """

    slot: int
    lease_nonce: bytes
    sealed_seed: bytes
    signing_certificate: bytes


class HelperCall:
    """The coordinator's way to its helper; one question at a time."""

    def __init__(
        self, address: str, issuer: CertificateAuthority, kept: HelperAnswers, threads: Threads
    ) -> None:
        """Prepare calls to ``host:port``; ``issuer`` certifies the key of each call."""
        self._address = address
        self._issuer = issuer
        self._kept = kept
        self._threads = threads

    async def keystream_sum(
        self, terms: MaskTerms, members: Sequence[MaskedMember], *, until: float
    ) -> memoryview:
        """Return the packed sum of the members' keystreams, ``packed_bytes(count, bits)`` long.

        It asks again, with pauses, while the helper is away, until ``until``, Unix seconds. The
        helper's signed answer is on this disk when this returns.

        Raises:
            HelperRefusedError: If the helper says no, or its answer cannot be trusted.
            HelperAwayError: If there was no answer in time.
            CertificateError: If the issuer has ended and certifies no caller.
            OSError: If the answer cannot be kept.
        """
        pause_s, has_waited = _FIRST_PAUSE_S, False
        while (left_s := until - time.time()) > 0:
            try:
                async with asyncio.timeout(left_s):
                    return await self._asked(terms, members)
            except AnswerError as error:
                _LOG.error("the helper's answer cannot be used: %s", error)
                raise HelperRefusedError(HelperCode.ANSWER_INVALID) from None
            except grpc.aio.AioRpcError as error:
                _raise_if_refused(error)
                if not has_waited:
                    _LOG.warning("the helper is away, and is asked again: %s", error.details())
                has_waited = True
            except TimeoutError:
                break
            await asyncio.sleep(min(pause_s, max(0.0, until - time.time())))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise HelperAwayError("the helper did not answer in time; the round is tried again")

    async def _asked(self, terms: MaskTerms, members: Sequence[MaskedMember]) -> memoryview:
        """Ask once, and return what was answered when it is checked and kept."""
        keys = await self._threads.run(lambda: caller_keys(self._issuer))
        credentials = grpc.ssl_channel_credentials(
            certificate_pem(self._issuer.certificate), keys.key_pem, keys.certificate_pem
        )
        async with grpc.aio.secure_channel(self._address, credentials, options=_OPTIONS) as channel:
            stub = HelperStub(channel)
            call = stub.Unmask()
            await _send(call, self._told(terms), members)
            signed, packed = await _received(
                call, packed_bytes(terms.form.element_count, terms.form.bits)
            )
            digest = await self._threads.run(lambda: hashlib.sha256(packed).digest())
            _check_fits(signed.answer, terms, members, digest)
            await self._keep(stub, signed, terms.run)
        return packed

    def _told(self, terms: MaskTerms) -> pb.UnmaskTerms:
        """Return the terms as they travel, with the newest answer that is kept here."""
        newest = self._kept.newest
        return pb.UnmaskTerms(
            helper_version=HELPER_VERSION,
            run=terms.run,
            round_number=terms.round_number,
            attempt=terms.form.attempt,
            group=terms.group,
            groups=terms.form.groups,
            least_contributors=terms.form.least_contributors,
            element_count=terms.form.element_count,
            bits=terms.form.bits,
            base_sha256=terms.base_sha256,
            plan_sha256=terms.plan_sha256,
            deadline_ms=terms.deadline_ms,
            coordinator_time_ms=int(time.time() * 1000),
            last_sequence=len(self._kept),
            last_sha256=b"" if newest is None else newest.sha256,
        )

    async def _keep(self, stub: "HelperAsyncStub", signed: SignedAnswer, run: bytes) -> None:
        """Keep an answer, and those before it that this coordinator was killed before it kept."""
        # A new answer is checked with the list; a repeated one is what was checked then.
        if self._kept.holds(signed):
            return
        new, first = [signed], len(self._kept) + 1
        if signed.answer.sequence != first:
            request = pb.ListAnswersRequest(run=run, first_sequence=first)
            new = [_signed(told) async for told in stub.ListAnswers(request)]
        await self._threads.run(lambda: self._kept.append(new))
        if not self._kept.holds(signed):
            raise AnswerError("the helper's list lacks the answer that it gave")


async def _send(call: _Call, terms: pb.UnmaskTerms, members: Sequence[MaskedMember]) -> None:
    """Send a question: the members once the helper has taken the terms.

    A helper that refuses while it is written to would be taken for a connection that broke.
    """
    # A call that has ended says why when its answer is read.
    with contextlib.suppress(asyncio.InvalidStateError):
        await call.write(pb.UnmaskRequest(terms=terms))
        taken = await call.read()
        if not isinstance(taken, pb.UnmaskResponse) or taken.WhichOneof("part") != "taken":
            raise AnswerError("the helper did not take the terms")
        for member in members:
            await call.write(pb.UnmaskRequest(member=pb.MaskMember(**member._asdict())))
        await call.done_writing()


async def _received(call: _Call, size: int) -> tuple[SignedAnswer, memoryview]:
    """Return an answer and its sum, which has exactly ``size`` bytes."""
    signed: SignedAnswer | None = None
    packed, filled = memoryview(bytearray(size)), 0
    while isinstance(response := await call.read(), pb.UnmaskResponse):
        if signed is None:
            signed = _signed(response.answer)
            continue
        piece = response.packed
        if filled + len(piece) > size:
            raise AnswerError(f"the sum must have {size} bytes, got more")
        packed[filled : filled + len(piece)] = piece
        filled += len(piece)
    if signed is None or filled != size:
        raise AnswerError(f"the sum must have {size} bytes, got {filled}")
    return signed, packed.toreadonly()


def _check_fits(
    answer: Answer, terms: MaskTerms, members: Sequence[MaskedMember], sum_sha256: bytes
) -> None:
    """Raise AnswerError unless an answer is to this question and of this sum."""
    form = terms.form
    asked = (terms.run, terms.round_number, form.attempt, terms.group, form.groups)
    told = (answer.run, *answer.question, answer.groups)
    vector = (form.element_count, form.bits, sum_sha256)
    set_sha256 = set_digest(
        SetMember(member.slot, member.lease_nonce, hashlib.sha256(member.sealed_seed).digest())
        for member in members
    )
    if told != asked or answer.set_sha256 != set_sha256:
        raise AnswerError("the answer is to another question")
    if (answer.element_count, answer.bits, answer.sum_sha256) != vector:
        raise AnswerError("the answer is of another sum")


def _signed(told: pb.HelperAnswer) -> SignedAnswer:
    return SignedAnswer(told.statement, told.signature, told.certificate)


def _raise_if_refused(error: grpc.aio.AioRpcError) -> None:
    """Raise the refusal that an error stands for; return if the helper may be asked again."""
    trailing = dict(cast("Sequence[tuple[str, str | bytes]]", error.trailing_metadata() or ()))
    code = trailing.get(CODE_KEY)
    if not isinstance(code, str) or code in ASK_AGAIN:
        return
    named = trailing.get(SLOTS_KEY, b"")
    packed = named if isinstance(named, bytes) else b""
    slots = [
        int.from_bytes(packed[start : start + _SLOT_BYTES])
        for start in range(0, len(packed), _SLOT_BYTES)
    ]
    raise HelperRefusedError(code, slots) from None
