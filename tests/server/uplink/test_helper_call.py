"""The coordinator believes no answer that the helper did not sign for this very question."""

import asyncio
import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from privacy.identities.party import Identity
from privacy.masking.helper_answer import (
    Answer,
    SetMember,
    SignedAnswer,
    first_head,
    set_digest,
    sign_answer,
)
from protos import helper_pb2 as pb
from protos import helper_pb2_grpc as pb_grpc
from protos.helper_refusals import HelperCode
from server.helper.running import listen
from server.uplink.helper_call import HelperRefusedError, MaskedMember
from tests.server.helper.scene import (
    FORM,
    RUN,
    Parties,
    calling,
    kept_by,
    make_parties,
    serving,
    terms_of,
)

SUM = bytes(range(250)) * 12
TERMS = terms_of()


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return make_parties(tmp_path_factory.mktemp("helper"), device_count=2)


@pytest.fixture
def parties(founded: Parties, tmp_path: Path) -> Parties:
    return replace(founded, root=tmp_path)


@dataclass
class Scripted(pb_grpc.HelperServicer):
    """A helper that answers as it is told, once its caller has said everything."""

    answer: SignedAnswer
    pieces: list[bytes]
    listed: list[SignedAnswer]

    async def Unmask(self, requests: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        await anext(aiter(requests))
        await context.write(pb.UnmaskResponse(taken=pb.TermsTaken()))
        async for _ in requests:
            pass
        await context.write(pb.UnmaskResponse(answer=pb.HelperAnswer(**self.answer._asdict())))
        for piece in self.pieces:
            await context.write(pb.UnmaskResponse(packed=piece))

    async def ListAnswers(self, request: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        for signed in self.listed[request.first_sequence - 1 :]:
            await context.write(pb.HelperAnswer(**signed._asdict()))


def members_of(parties: Parties) -> list[MaskedMember]:
    return parties.members([0, 1], TERMS)


def honest(members: list[MaskedMember]) -> Answer:
    return Answer(
        sequence=1,
        run=RUN,
        round_number=1,
        attempt=0,
        group=0,
        groups=1,
        element_count=FORM.element_count,
        bits=FORM.bits,
        set_sha256=set_digest(
            SetMember(member.slot, member.lease_nonce, hashlib.sha256(member.sealed_seed).digest())
            for member in members
        ),
        sum_sha256=hashlib.sha256(SUM).digest(),
        recorded_ms=1,
        previous_sha256=first_head(RUN),
    )


def called(parties: Parties, members: list[MaskedMember], scripted: Scripted) -> bytes:
    async def run() -> bytes:
        grpc_server, port = await listen(scripted, parties.helper, "127.0.0.1:0")
        try:
            async with calling(parties, f"127.0.0.1:{port}") as call:
                until = time.time() + 60
                return bytes(await call.keystream_sum(TERMS, members, until=until))
        finally:
            await grpc_server.stop(None)

    return asyncio.run(run())


def test_an_honest_answer_is_kept_before_it_is_used(parties: Parties) -> None:
    members = members_of(parties)
    signed = sign_answer(honest(members), parties.helper)

    assert called(parties, members, Scripted(signed, [SUM[:7], SUM[7:]], [])) == SUM

    assert kept_by(parties).newest == signed


@pytest.mark.parametrize(
    "pieces",
    [[SUM[:-1]], [SUM, b"x"], [], [SUM[:-1] + b"x"]],
    ids=["short", "long", "none", "another"],
)
def test_a_sum_that_was_not_signed_is_refused(parties: Parties, pieces: list[bytes]) -> None:
    members = members_of(parties)
    signed = sign_answer(honest(members), parties.helper)

    with pytest.raises(HelperRefusedError) as refused:
        called(parties, members, Scripted(signed, pieces, []))

    assert refused.value.code == HelperCode.ANSWER_INVALID
    assert len(kept_by(parties)) == 0


@pytest.mark.parametrize(
    ("changes", "signer"),
    [
        ({"set_sha256": bytes(32)}, "helper"),
        ({"round_number": 2}, "helper"),
        ({"attempt": 1}, "helper"),
        ({"group": 1}, "helper"),
        ({"run": bytes(16)}, "helper"),
        ({"element_count": 1001}, "helper"),
        ({"bits": 32}, "helper"),
        ({"previous_sha256": bytes(32)}, "helper"),
        ({"sequence": 2}, "helper"),
        ({}, "device"),
    ],
)
def test_an_answer_to_something_else_or_by_somebody_else_is_refused(
    parties: Parties, changes: dict[str, Any], signer: str
) -> None:
    members = members_of(parties)
    by: Identity = parties.helper if signer == "helper" else parties.devices[0]
    signed = sign_answer(honest(members)._replace(**changes), by)

    with pytest.raises(HelperRefusedError) as refused:
        called(parties, members, Scripted(signed, [SUM], [signed]))

    assert refused.value.code == HelperCode.ANSWER_INVALID
    assert len(kept_by(parties)) == 0


def test_a_set_that_fills_every_buffer_is_refused_all_the_same(parties: Parties) -> None:
    few = parties.members([0, 1], TERMS)
    # 8 MB that the helper never reads: the run is another's.
    many = [few[0]._replace(slot=slot) for slot in range(3000)]
    terms = replace(TERMS, run=bytes(16))

    async def run() -> None:
        async with serving(parties) as address, calling(parties, address) as call:
            await call.keystream_sum(terms, many, until=time.time() + 60)

    with pytest.raises(HelperRefusedError) as refused:
        asyncio.run(run())
    assert refused.value.code == HelperCode.ANOTHER_RUN
