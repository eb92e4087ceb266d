"""What a helper answers and refuses, over its real service and the coordinator's own call."""

import asyncio
import errno
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import certificate_pem
from privacy.identities.helper_admission import caller_keys
from privacy.identities.issuing_key import make_issuing_key
from privacy.masking.keystream import add_keystream, keystream_sum
from privacy.masking.mask_form import MaskForm, MaskTerms
from privacy.masking.packing import pack, unpack
from protos import helper_pb2 as pb
from protos.helper_pb2_grpc import HelperStub
from protos.helper_refusals import LINES, HelperCode
from protos.refusals import CODE_KEY
from server.helper import service
from server.helper.answers import Answers
from server.helper.service import HelperService
from server.helper.settings import HelperSettings
from server.uplink.helper_call import HelperAwayError, HelperRefusedError, MaskedMember
from tests.integration.federation import free_ports
from tests.server.helper.scene import (
    FORM,
    SETTINGS,
    Parties,
    ask,
    asked,
    calling,
    changed,
    kept_by,
    seed_of,
    serving,
    terms_of,
)


def refusal(
    parties: Parties, terms: MaskTerms, members: list[MaskedMember], **serving_with: object
) -> HelperRefusedError:
    """Return how a question is refused, and see that it left nothing behind."""
    before = parties.folder.open_answers(SETTINGS).listed()
    with pytest.raises(HelperRefusedError) as refused:
        asked(parties, terms, members, **serving_with)
    assert parties.folder.open_answers(SETTINGS).listed() == before
    assert str(refused.value) == LINES[HelperCode(refused.value.code)]
    return refused.value


@pytest.mark.parametrize("bits", [16, 20, 24, 32])
def test_the_answer_is_the_sum_of_the_members_keystreams(parties: Parties, bits: int) -> None:
    form = replace(FORM, element_count=1001, bits=bits)
    terms = terms_of(form=form)

    packed = asked(parties, terms, parties.members([0, 1, 2], terms))

    each = [keystream_sum([seed_of(slot, terms)], 1001, 32).astype(np.uint64) for slot in range(3)]
    assert packed == bytes(pack((sum(each) % 2**bits).astype(np.uint32), bits))


def test_the_sum_of_masked_vectors_less_the_answer_is_the_sum_of_what_was_masked(
    parties: Parties,
) -> None:
    terms = terms_of()
    plain = np.arange(3 * 1000, dtype=np.uint32).reshape(3, 1000)
    total = np.zeros(1000, dtype=np.uint32)
    for slot in range(3):
        masked = plain[slot].copy()
        add_keystream(masked, seed_of(slot, terms), bits=24)
        assert not np.array_equal(masked, plain[slot])
        total += masked

    packed = asked(parties, terms, parties.members([0, 1, 2], terms))

    unmasked = (total - unpack(packed, 1000, 24)) % 2**24
    # j + (1000 + j) + (2000 + j).
    assert unmasked.tolist() == [3 * j + 3000 for j in range(1000)]


def test_the_same_set_gets_the_same_answer_after_a_restart_of_both(parties: Parties) -> None:
    terms = terms_of()
    members = parties.members([0, 1, 2], terms)

    first = asked(parties, terms, members)
    # In another order it is the same set.
    again = asked(parties, terms, members[::-1])

    assert first == again
    assert len(parties.folder.open_answers(SETTINGS).listed()) == 1
    assert len(kept_by(parties)) == 1


def test_groups_of_one_attempt_are_answered_each_for_itself(parties: Parties) -> None:
    form = replace(FORM, groups=2)

    async def both() -> None:
        async with serving(parties) as address:
            for group in (1, 0):
                terms = terms_of(group=group, form=form)
                await ask(parties, address, terms, parties.members([group, group + 2], terms))

    asyncio.run(both())

    answers = parties.folder.open_answers(SETTINGS).listed()
    assert [signed.answer.question for signed in answers] == [(1, 0, 1), (1, 0, 0)]


def test_a_set_that_is_too_small_is_refused(parties: Parties) -> None:
    terms = terms_of()

    refused = refusal(parties, terms, parties.members([3], terms))

    assert (refused.code, refused.slots) == (HelperCode.TOO_FEW, ())


def test_a_set_smaller_than_its_plan_counts_shares_of_noise_on_is_refused(
    parties: Parties,
) -> None:
    # Of 1,000 contributors each adds a thousandth of the noise; two would hide behind two.
    promised = terms_of(form=replace(FORM, least_contributors=4))
    pair, less = parties.members([0, 1], promised), changed(promised, form=FORM)

    assert refusal(parties, promised, pair).code == HelperCode.TOO_FEW
    # Nor can the coordinator name a smaller number: the seeds are bound to the plan's.
    lied = refusal(parties, less, pair)

    assert (lied.code, lied.slots) == (HelperCode.FORM_DIFFERS, (0, 1))
    assert asked(parties, promised, parties.members(range(4), promised))


def test_another_set_for_the_same_question_is_refused(parties: Parties) -> None:
    terms = terms_of()
    asked(parties, terms, parties.members([0, 1, 2], terms))

    refused = refusal(parties, terms, parties.members([0, 1], terms))

    assert (refused.code, refused.slots) == (HelperCode.OTHER_SET, ())


def test_a_lease_of_another_set_of_the_attempt_is_refused(parties: Parties) -> None:
    form = replace(FORM, groups=2)
    first, second = (terms_of(group=group, form=form) for group in (0, 1))
    asked(parties, first, parties.members([0, 2], first))
    lease = parties.member(0, first).lease_nonce

    overlapping = [parties.member(1, second, nonce=lease), parties.member(3, second)]

    assert refusal(parties, second, overlapping).code == HelperCode.OVERLAPPING_SET


def test_a_device_that_was_given_a_second_lease_is_in_one_sum_of_an_attempt(
    parties: Parties,
) -> None:
    form = replace(FORM, groups=2)
    first, second = (terms_of(group=group, form=form) for group in (0, 1))
    asked(parties, first, parties.members([0, 2], first))

    # Slot 1 is another lease of the device that answered in slot 0.
    twice = [parties.member(1, second, device=parties.devices[0]), parties.member(3, second)]

    assert refusal(parties, second, twice).code == HelperCode.OVERLAPPING_SET
    assert asked(parties, second, parties.members([1, 3], second))


@pytest.mark.parametrize(("round_number", "attempt"), [(1, 5), (2, 0)])
def test_an_attempt_older_than_one_that_was_answered_is_refused(
    parties: Parties, round_number: int, attempt: int
) -> None:
    newer = terms_of(2, form=replace(FORM, attempt=1))
    asked(parties, newer, parties.members([0, 1], newer))
    older = terms_of(round_number, form=replace(FORM, attempt=attempt))

    refused = refusal(parties, older, parties.members([0, 1], older))

    assert refused.code == HelperCode.STALE_ATTEMPT


def test_so_many_attempts_a_day_are_answered_and_no_more(parties: Parties) -> None:
    for round_number in (1, 2, 3):
        terms = terms_of(round_number)
        members = parties.members([0, 1], terms)
        asked(parties, terms, members)
    fourth = terms_of(4)

    refused = refusal(parties, fourth, parties.members([0, 1], fourth))

    assert refused.code == HelperCode.TOO_MANY_ROUNDS
    # What was answered counts once and may be asked again.
    assert asked(parties, terms, members)


def test_another_run_is_refused(parties: Parties) -> None:
    terms = terms_of()

    refused = refusal(parties, changed(terms, run=bytes(16)), parties.members([0, 1], terms))

    assert refused.code == HelperCode.ANOTHER_RUN


@pytest.mark.parametrize("hours", [-25.0, 25.0])
def test_clocks_a_day_apart_are_refused(parties: Parties, hours: float) -> None:
    terms = terms_of()
    wrong = time.time() + hours * 3600

    refused = refusal(parties, terms, parties.members([0, 1], terms), clock=lambda: wrong)

    assert refused.code == HelperCode.CLOCK_WRONG


def test_a_deadline_long_past_is_refused(parties: Parties) -> None:
    terms = changed(terms_of(), deadline_ms=int(time.time() * 1000) - 25 * 3600 * 1000)

    refused = refusal(parties, terms, parties.members([0, 1], terms))

    assert refused.code == HelperCode.DEADLINE_LONG_PAST


def test_a_deadline_further_ahead_than_any_round_is_refused(parties: Parties) -> None:
    # A week, and a day for the clocks.
    ahead_ms = int(time.time() * 1000) + 8 * 24 * 3600 * 1000
    allowed, refused = (changed(terms_of(), deadline_ms=ahead_ms + ms) for ms in (0, 60_000))

    assert (
        refusal(parties, refused, parties.members([0, 1], refused)).code
        == HelperCode.DEADLINE_TOO_FAR
    )
    assert asked(parties, allowed, parties.members([0, 1], allowed))


def test_a_device_or_a_lease_counts_once(parties: Parties) -> None:
    terms = terms_of()
    # With four devices, slots 0 and 4 are of one device.
    twice = parties.members([0, 1, 4], terms)
    first = parties.member(0, terms)
    same_lease = [first, parties.member(1, terms, nonce=first.lease_nonce)]

    assert refusal(parties, terms, twice).code == HelperCode.REPEATED_DEVICE
    assert refusal(parties, terms, same_lease).code == HelperCode.REPEATED_LEASE
    assert refusal(parties, terms, [first, first]).code == HelperCode.REPEATED_LEASE


def of_other_authority(parties: Parties, terms: MaskTerms) -> MaskedMember:
    other = CertificateAuthority.create(parties.root / "other", "cd" * 16)
    stranger = replace(parties, authority=other, root=parties.root / "strangers").device("stranger")
    return parties.member(2, terms, device=stranger)


def expired(parties: Parties, terms: MaskTerms) -> MaskedMember:
    return parties.member(2, terms, device=parties.device("former", days_ago=91))


def with_the_coordinators_kind_of_key(parties: Parties, terms: MaskTerms) -> MaskedMember:
    member = parties.member(2, terms)
    return member._replace(signing_certificate=parties.devices[2].certificates.wrapping)


def bound_to(**changes: object) -> Callable[[Parties, MaskTerms], MaskedMember]:
    def make(parties: Parties, terms: MaskTerms) -> MaskedMember:
        return parties.member(2, terms, bound_to=changed(terms, **changes))

    return make


def of_other_form(**changes: int) -> Callable[[Parties, MaskTerms], MaskedMember]:
    return bound_to(form=MaskForm(**{**FORM.__dict__, **changes}))


def signed_by_another(parties: Parties, terms: MaskTerms) -> MaskedMember:
    member = parties.member(2, terms)
    return member._replace(signing_certificate=parties.devices[3].certificates.signing)


def damaged(at: int) -> Callable[[Parties, MaskTerms], MaskedMember]:
    def make(parties: Parties, terms: MaskTerms) -> MaskedMember:
        member = parties.member(2, terms)
        sealed = bytearray(member.sealed_seed)
        sealed[at] ^= 1
        return member._replace(sealed_seed=bytes(sealed))

    return make


def cut_short(parties: Parties, terms: MaskTerms) -> MaskedMember:
    member = parties.member(2, terms)
    return member._replace(sealed_seed=member.sealed_seed[:-1])


def with_a_seed_of_another(parties: Parties, terms: MaskTerms) -> MaskedMember:
    return parties.member(2, terms, seed=seed_of(1, terms))


@pytest.mark.parametrize(
    ("member", "code"),
    [
        (of_other_authority, HelperCode.CERTIFICATE_UNKNOWN),
        (expired, HelperCode.CERTIFICATE_EXPIRED),
        (with_the_coordinators_kind_of_key, HelperCode.CERTIFICATE_UNKNOWN),
        (bound_to(base_sha256=bytes(32)), HelperCode.BASE_DIFFERS),
        (bound_to(plan_sha256=bytes(32)), HelperCode.PLAN_DIFFERS),
        (bound_to(run=bytes(16)), HelperCode.LEASE_DIFFERS),
        (bound_to(round_number=7), HelperCode.LEASE_DIFFERS),
        (bound_to(deadline_ms=5), HelperCode.LEASE_DIFFERS),
        (of_other_form(element_count=999), HelperCode.FORM_DIFFERS),
        (of_other_form(bits=16), HelperCode.FORM_DIFFERS),
        (of_other_form(attempt=1), HelperCode.FORM_DIFFERS),
        (of_other_form(groups=3), HelperCode.FORM_DIFFERS),
        (of_other_form(least_contributors=9), HelperCode.FORM_DIFFERS),
        (signed_by_another, HelperCode.SEED_UNUSABLE),
        (damaged(100), HelperCode.SEED_UNUSABLE),
        (damaged(-1), HelperCode.SEED_UNUSABLE),
        (cut_short, HelperCode.SEED_UNUSABLE),
    ],
)
def test_a_member_that_cannot_be_summed_is_named_and_the_others_can_be(
    parties: Parties,
    member: Callable[[Parties, MaskTerms], MaskedMember],
    code: HelperCode,
) -> None:
    terms = terms_of()
    good = parties.members([0, 1], terms)

    refused = refusal(parties, terms, [*good, member(parties, terms)])

    assert refused.code == code
    assert refused.slots == (2,)
    assert asked(parties, terms, good)


def test_a_seed_is_used_once_in_a_set_and_ever(parties: Parties) -> None:
    terms, later = terms_of(), terms_of(2)
    good = parties.members([0, 1], terms)

    within = refusal(parties, terms, [*good, with_a_seed_of_another(parties, terms)])
    asked(parties, terms, good)
    reused = [parties.member(0, later), parties.member(1, later, seed=seed_of(0, terms))]
    across = refusal(parties, later, reused)

    # Of two that have one seed neither can be told to be the other's.
    assert (within.code, within.slots) == (HelperCode.REPEATED_SEED, (1, 2))
    assert (across.code, across.slots) == (HelperCode.REPEATED_SEED, (1,))


def test_a_slot_of_another_group_is_named(parties: Parties) -> None:
    terms = terms_of(group=1, form=replace(FORM, groups=2))

    refused = refusal(parties, terms, parties.members([1, 3, 2], terms))

    assert (refused.code, refused.slots) == (HelperCode.GROUP_DIFFERS, (2,))


def test_a_helper_that_was_put_back_from_a_backup_refuses_until_it_is_up_to_date(
    parties: Parties,
) -> None:
    first, second, third = terms_of(1), terms_of(2), terms_of(3)
    asked(parties, first, parties.members([0, 1], first))
    backup = parties.folder.answers.read_bytes()
    asked(parties, second, parties.members([0, 1], second))
    for file in parties.folder.root.glob("answers.sqlite*"):
        file.unlink()
    parties.folder.answers.write_bytes(backup)

    refused = refusal(parties, third, parties.members([0, 1], third))

    assert refused.code == HelperCode.HELPER_BEHIND


def test_a_coordinator_that_lost_its_last_answers_has_them_again(parties: Parties) -> None:
    for round_number in (1, 2):
        terms = terms_of(round_number)
        asked(parties, terms, parties.members([0, 1], terms))
    kept = parties.root / "helper-answers.jsonl"
    lines = kept.read_bytes().splitlines(keepends=True)
    # The second was being written when the coordinator was killed.
    kept.write_bytes(lines[0] + lines[1][:100])

    third = terms_of(3)
    asked(parties, third, parties.members([0, 1], third))

    assert kept.read_bytes().splitlines(keepends=True)[:2] == lines
    assert len(kept_by(parties)) == 3


def raw_refusal(
    parties: Parties, keys: tuple[bytes, bytes], terms: pb.UnmaskTerms, **serving_with: object
) -> str:
    """Return the code of a call that the coordinator's own software would not make."""

    async def run() -> str:
        async with serving(parties, **serving_with) as address:  # type: ignore[arg-type]
            credentials = grpc.ssl_channel_credentials(
                certificate_pem(parties.authority.certificate), *keys
            )
            async with grpc.aio.secure_channel(address, credentials) as channel:
                call = HelperStub(channel).Unmask(iter([pb.UnmaskRequest(terms=terms)]))
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await call.read()
        return str(dict(failed.value.trailing_metadata() or ()).get(CODE_KEY))

    return asyncio.run(run())


def whole_terms() -> pb.UnmaskTerms:
    terms = terms_of()
    return pb.UnmaskTerms(
        helper_version=1,
        run=terms.run,
        round_number=1,
        groups=1,
        least_contributors=1,
        element_count=1000,
        bits=24,
        base_sha256=terms.base_sha256,
        plan_sha256=terms.plan_sha256,
        deadline_ms=terms.deadline_ms,
        coordinator_time_ms=int(time.time() * 1000),
    )


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("helper_version", 2, HelperCode.VERSION_MISMATCH),
        ("run", b"short", HelperCode.TERMS_MALFORMED),
        ("round_number", 0, HelperCode.TERMS_MALFORMED),
        ("group", 1, HelperCode.TERMS_MALFORMED),
        ("groups", 0, HelperCode.TERMS_MALFORMED),
        ("least_contributors", 0, HelperCode.TERMS_MALFORMED),
        ("element_count", 0, HelperCode.TERMS_MALFORMED),
        ("element_count", (1 << 28) + 1, HelperCode.TERMS_MALFORMED),
        ("bits", 17, HelperCode.TERMS_MALFORMED),
        ("base_sha256", b"", HelperCode.TERMS_MALFORMED),
        ("plan_sha256", b"", HelperCode.TERMS_MALFORMED),
    ],
)
def test_terms_out_of_their_bounds_are_refused(
    parties: Parties, field: str, value: int | bytes, code: HelperCode
) -> None:
    terms = whole_terms()
    setattr(terms, field, value)

    assert raw_refusal(parties, caller_keys(parties.issuer), terms) == code


def test_a_device_may_not_ask(parties: Parties) -> None:
    device = parties.devices[0]
    keys = (device.tls_key_pem, device.tls_certificate_pem)

    assert raw_refusal(parties, keys, whole_terms()) == HelperCode.CALLER_UNKNOWN


def test_a_caller_of_an_issuing_key_that_was_replaced_is_refused(parties: Parties) -> None:
    terms = terms_of()
    stolen, members = parties.issuer, parties.members([0, 1], terms)
    now = time.time() + 60
    (parties.root / "newer").mkdir()
    newer = make_issuing_key(parties.root / "newer", parties.authority, now=now)
    assert asked(parties, terms, members)

    # The helper is started anew for each: what it has met is on its disk.
    assert asked(replace(parties, issuer=newer), terms, members)

    assert refusal(parties, terms, members).code == HelperCode.CALLER_UNKNOWN
    assert raw_refusal(parties, caller_keys(stolen), whole_terms()) == HelperCode.CALLER_UNKNOWN
    assert asked(replace(parties, issuer=newer), terms, members)


def test_a_coordinator_of_another_federation_gets_no_connection(
    parties: Parties, tmp_path: Path
) -> None:
    other = CertificateAuthority.create(tmp_path / "other", "cd" * 16)

    async def run() -> None:
        terms = terms_of()
        async with (
            serving(parties) as address,
            calling(parties, address, issuer=other) as call,
        ):
            members = parties.members([0, 1], terms)
            await call.keystream_sum(terms, members, until=time.time() + 0.7)

    with pytest.raises(HelperAwayError):
        asyncio.run(run())


def test_a_close_waits_for_a_helper_that_comes_back(parties: Parties) -> None:
    terms = terms_of()
    members = parties.members([0, 1], terms)
    # A port that no other process is given while nobody listens on it.
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = HelperSettings(listen=address, least_contributors=2, largest_rounds_a_day=3)

    async def run() -> bytes:
        async with serving(parties, settings=settings):
            pass  # The address is free again.
        asking = asyncio.create_task(ask(parties, address, terms, members))
        await asyncio.sleep(0.2)
        async with serving(parties, settings=settings):
            return await asking

    assert len(asyncio.run(run())) == 3 * 1000


def test_a_helper_that_stays_away_is_given_up_at_the_deadline(parties: Parties) -> None:
    terms = terms_of()

    with pytest.raises(HelperAwayError):
        asyncio.run(ask(parties, "127.0.0.1:9", terms, parties.members([0, 1], terms), for_s=0.3))


def test_a_caller_that_falls_silent_is_let_go(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_set = HelperService._read_set

    def read_soon(*arguments: Any) -> Any:
        # From here on: how long the terms took to come does not count.
        monkeypatch.setattr(service, "PIECE_S", 0.1)
        return read_set(*arguments)

    monkeypatch.setattr(HelperService, "_read_set", read_soon)

    async def run() -> str:
        async with serving(parties) as address:
            credentials = grpc.ssl_channel_credentials(
                certificate_pem(parties.authority.certificate), *caller_keys(parties.issuer)
            )
            async with grpc.aio.secure_channel(address, credentials) as channel:
                call = HelperStub(channel).Unmask()
                await call.write(pb.UnmaskRequest(terms=whole_terms()))
                await call.read()
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await call.read()
        return str(dict(failed.value.trailing_metadata() or ()).get(CODE_KEY))

    assert asyncio.run(run()) == HelperCode.TOO_SLOW


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (OSError(errno.ENOSPC, "/home/helper is full"), LINES[HelperCode.DISK_FULL]),
        (RuntimeError("/home/helper"), LINES[HelperCode.HELPER_FAILED]),
    ],
)
def test_a_helper_that_fails_tells_no_path_and_is_asked_again(
    parties: Parties,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    line: str,
) -> None:
    terms = terms_of()
    members = parties.members([0, 1], terms)
    record, failures = Answers.record, [failure]

    def fail_once(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return record(*arguments, **named)

    monkeypatch.setattr(Answers, "record", fail_once)

    assert asked(parties, terms, members)

    (away,) = [text for text in caplog.messages if "is asked again" in text]
    assert away == f"the helper is away, and is asked again: {line}"


def test_every_code_has_one_line() -> None:
    assert LINES.keys() == set(HelperCode)
    assert all(line and "\n" not in line and "%" not in line for line in LINES.values())
