"""The helper's answers to the coordinator, over gRPC."""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import grpc

from privacy.identities.certificates import (
    CertificateError,
    KeyUse,
    certificate_der,
    check_certificate,
)
from privacy.identities.party import Identity
from privacy.masking.helper_answer import SignedAnswer
from privacy.masking.keystream import keystream_sum
from privacy.masking.mask_form import MaskForm, MaskTerms
from privacy.masking.packing import pack
from privacy.noise.masked_settings import LONGEST_ROUND_S
from protos import helper_pb2 as pb
from protos import helper_pb2_grpc as pb_grpc
from protos.helper_refusals import HelperCode
from protos.version import HELPER_VERSION
from server.aggregation.closing_workers import ClosingWorkers, closing_worker_count
from server.helper.answers import Answers, Question
from server.helper.members import MemberSet
from server.helper.newest_issuer import NewestIssuer
from server.helper.refusal import Refusal, answering
from server.helper.settings import HelperSettings
from server.records.failpoints import UNARMED, Failpoint, Failpoints
from server.records.threads import Threads

_LOG = logging.getLogger(__name__)
PIECE_BYTES = 1 << 20
PIECE_S = 45.0
_DAY_MS = 24 * 3600 * 1000
_READ_AT_ONCE = 32
_LISTED_AT_ONCE = 256
_Result = TypeVar("_Result")
# Any: the message types differ for every method, and only the caller is read here.
_Context = grpc.aio.ServicerContext[Any, Any]


class HelperService(pb_grpc.HelperServicer):
    """The coordinator's door to a helper; sums are made one after the other."""

    def __init__(
        self,
        answers: Answers,
        helper: Identity,
        run: bytes,
        settings: HelperSettings,
        *,
        issuers: NewestIssuer,
        threads: Threads,
        failpoints: Failpoints = UNARMED,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Answer for one run, 16 bytes; ``clock`` gives Unix seconds."""
        self._answers = answers
        self._helper = helper
        self._run = run
        self._settings = settings
        self._issuers = issuers
        self._threads = threads
        self._failpoints = failpoints
        self._clock = clock
        self._one_sum = asyncio.Lock()

    # The generated class has these for the synchronous server too.
    async def Unmask(  # type: ignore[override]  # noqa: N802
        self, requests: AsyncIterator[pb.UnmaskRequest], context: _Context
    ) -> None:
        """Sum the keystreams of a set; the answer is durable before its first byte goes out."""
        async with answering(context):
            await self._check_caller(context)
            async with self._one_sum:
                terms = await self._terms(requests)
                await _paced(context.write(pb.UnmaskResponse(taken=pb.TermsTaken())))
                asked = await self._read_set(terms, requests)
                signed, packed = await self._threads.run(lambda: self._answer(asked))
                await _paced(context.write(pb.UnmaskResponse(answer=_told(signed))))
                for start in range(0, len(packed), PIECE_BYTES):
                    piece = bytes(packed[start : start + PIECE_BYTES])
                    await _paced(context.write(pb.UnmaskResponse(packed=piece)))

    async def ListAnswers(  # type: ignore[override]  # noqa: N802
        self, request: pb.ListAnswersRequest, context: _Context
    ) -> None:
        """List what was answered."""
        async with answering(context):
            await self._check_caller(context)
            if request.run != self._run:
                raise Refusal(HelperCode.ANOTHER_RUN)
            first = max(1, request.first_sequence)
            while listed := await self._threads.run(
                partial(self._answers.listed, first, most=_LISTED_AT_ONCE)
            ):
                for signed in listed:
                    await _paced(context.write(_told(signed)))
                first = listed[-1].answer.sequence + 1

    async def _check_caller(self, context: _Context) -> None:
        """Refuse all but the coordinator, and it with what an earlier issuing key certified."""
        shown = context.auth_context()
        # A server of OpenSSL's sees the caller's own certificate apart from those above it.
        own, above = (
            b"".join(shown.get(name, ())) for name in ("x509_pem_cert", "x509_pem_cert_chain")
        )
        pem = above if above.startswith(own) else own + above
        try:
            caller = check_certificate(
                certificate_der(pem),
                ca=self._helper.authority,
                use=KeyUse.TLS,
                role="caller",
                now=self._clock(),
            )
        except CertificateError:
            raise Refusal(HelperCode.CALLER_UNKNOWN) from None
        await self._threads.run(partial(self._issuers.check, caller))

    async def _terms(self, requests: AsyncIterator[pb.UnmaskRequest]) -> MaskTerms:
        """Return a call's terms.

        Raises:
            Refusal: If no set could get an answer under them.
        """
        first = await _paced(anext(aiter(requests), None))
        if first is None or first.WhichOneof("part") != "terms":
            raise Refusal(HelperCode.TERMS_MALFORMED)
        terms, told = terms_of(first.terms), first.terms
        now_ms = self._now_ms()
        if terms.run != self._run:
            raise Refusal(HelperCode.ANOTHER_RUN)
        if abs(told.coordinator_time_ms - now_ms) > _DAY_MS:
            raise Refusal(HelperCode.CLOCK_WRONG)
        if now_ms - terms.deadline_ms > _DAY_MS:
            # Bounds too for how long a set could be asked for again if this list went back.
            raise Refusal(HelperCode.DEADLINE_LONG_PAST)
        if terms.deadline_ms - now_ms > LONGEST_ROUND_S * 1000 + _DAY_MS:
            raise Refusal(HelperCode.DEADLINE_TOO_FAR)

        def look() -> None:
            self._answers.check_known(told.last_sequence, told.last_sha256)
            self._answers.check_open(
                terms.round_number, terms.form.attempt, terms.group, now_ms=now_ms
            )

        await self._threads.run(look)
        return terms

    async def _read_set(
        self, terms: MaskTerms, requests: AsyncIterator[pb.UnmaskRequest]
    ) -> Question:
        """Return what is asked of the members that follow the terms; Refusal as `MemberSet`."""
        members = MemberSet(terms, self._helper, self._helper.authority, self._clock())
        while batch := await self._batch(requests):
            # Bound to this batch: the thread is done before the next one is read.
            await self._threads.run(partial(_add_all, members, batch))
        least = max(self._settings.least_contributors, terms.form.least_contributors)
        return await self._threads.run(lambda: members.question(least_contributors=least))

    async def _batch(self, requests: AsyncIterator[pb.UnmaskRequest]) -> list[pb.MaskMember]:
        batch: list[pb.MaskMember] = []
        while len(batch) < _READ_AT_ONCE:
            request = await _paced(anext(aiter(requests), None))
            if request is None:
                break
            if request.WhichOneof("part") != "member":
                raise Refusal(HelperCode.TERMS_MALFORMED)
            batch.append(request.member)
        return batch

    def _answer(self, asked: Question) -> tuple[SignedAnswer, memoryview]:
        """Return the signed answer, which is on the disk, and the packed sum."""
        form = asked.form
        before = self._answers.find(asked, now_ms=self._now_ms())
        seeds = [asked.seeds[slot] for slot in sorted(asked.seeds)]
        with ClosingWorkers(closing_worker_count()) as workers:
            total = keystream_sum(
                seeds, form.element_count, form.bits, parts=workers.count, run=workers.run
            )
        packed = memoryview(pack(total, form.bits)).cast("B")
        sum_sha256 = hashlib.sha256(packed).digest()
        self._failpoints.reach(Failpoint.ANSWER_MADE)
        signed = self._answers.record(asked, sum_sha256, self._helper, now_ms=self._now_ms())
        self._failpoints.reach(Failpoint.ANSWER_KEPT)
        _LOG.info(
            "round %s, attempt %s, group %s: %s",
            asked.round_number,
            form.attempt,
            asked.group,
            "answered" if before is None else "answered again",
        )
        return signed, packed

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def terms_of(told: pb.UnmaskTerms) -> MaskTerms:
    """Return a call's terms in range.

    Raises:
        Refusal: If a field is out of range, or the caller speaks another version.
    """
    if told.helper_version != HELPER_VERSION:
        raise Refusal(HelperCode.VERSION_MISMATCH)
    try:
        terms = MaskTerms(
            run=told.run,
            round_number=told.round_number,
            group=told.group,
            form=MaskForm(
                element_count=told.element_count,
                bits=told.bits,
                attempt=told.attempt,
                groups=told.groups,
                least_contributors=told.least_contributors,
            ),
            base_sha256=told.base_sha256,
            plan_sha256=told.plan_sha256,
            deadline_ms=told.deadline_ms,
        )
        # Sizes and ranges are those of every member's context.
        terms.context(0, bytes(16))
    except ValueError:
        raise Refusal(HelperCode.TERMS_MALFORMED) from None
    if terms.group >= terms.form.groups:
        raise Refusal(HelperCode.TERMS_MALFORMED)
    return terms


def _add_all(members: MemberSet, batch: list[pb.MaskMember]) -> None:
    for member in batch:
        members.add(member)


async def _paced(moving: Awaitable[_Result]) -> _Result:
    """Wait for one piece to come or go; Refusal if it takes too long."""
    try:
        async with asyncio.timeout(PIECE_S):
            return await moving
    except TimeoutError:
        raise Refusal(HelperCode.TOO_SLOW) from None


def _told(signed: SignedAnswer) -> pb.HelperAnswer:
    return pb.HelperAnswer(**signed._asdict())
