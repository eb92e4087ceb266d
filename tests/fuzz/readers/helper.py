"""Readers of a helper: its settings, files of its admission, lists of answers, questions."""

import functools
from collections.abc import Iterator
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from privacy.identities.certificates import CertificateError, KeyUse
from privacy.identities.helper_admission import (
    HelperCertificates,
    certify_helper,
    check_helper,
    make_helper_request,
    read_helper_certificates,
    read_helper_request,
)
from privacy.identities.party import Identity
from privacy.masking.helper_answer import (
    Answer,
    AnswerError,
    SignedAnswer,
    check_list,
    encode_line,
    first_head,
    read_answers,
    sign_answer,
)
from privacy.masking.mask_form import MaskForm, MaskTerms
from privacy.masking.sealed_seed import seal_seed, seed_header
from privacy.sealing.envelope import UnsealError
from protos import helper_pb2 as pb
from server.helper.members import MemberSet
from server.helper.refusal import Refusal
from server.helper.service import terms_of
from server.helper.settings import HelperSettings, HelperSettingsError, read_helper_settings
from tests.fuzz.parties import RUN, parties
from tests.fuzz.target import Prepared, Target, of_file
from tests.privacy.conftest import NOW

_TERMS = MaskTerms(
    run=bytes.fromhex(RUN),
    round_number=1,
    group=0,
    form=MaskForm(element_count=4, bits=16, attempt=0, groups=1, least_contributors=1),
    base_sha256=bytes(32),
    plan_sha256=bytes(32),
    deadline_ms=1_800_000_060_000,
)
_NONCE = bytes(16)


def targets() -> Iterator[Target]:
    """Yield the helper's targets."""
    settings = HelperSettings(listen="127.0.0.1:7450", least_contributors=2, largest_rounds_a_day=3)
    yield Target(
        "helper/helper.toml",
        (HelperSettingsError,),
        of_file(read_helper_settings, settings.encode()),
        ("toml",),
    )
    yield Target("helper/request", (CertificateError, ValueError), _requests, ("json",))
    yield Target("helper/certificates", (CertificateError,), _certificates, ("json",))
    yield Target("helper/answers", (AnswerError,), _answers, ("json", "text"))
    yield Target("helper/sealed-seed", (UnsealError,), _seeds)
    yield Target("helper/terms", (DecodeError, Refusal), _terms)
    yield Target("helper/member", (DecodeError, Refusal), _members)


@functools.cache
def _helper() -> Identity:
    folder = parties().folder / "helper"
    requests = Identity.create_requests(folder, "helper")
    authority = parties().authority
    issued = authority.issue_all(requests, name="helper", role="helper", now=NOW)
    return Identity.install(folder, issued, ca=authority.certificate, role="helper", now=NOW)


def _requests(folder: Path) -> Prepared:
    authority = parties().authority
    requests = Identity.create_requests(folder / "requests", "helper")
    made = make_helper_request(
        requests, authority=authority.certificate, hostnames=["h.example", "::1"]
    )

    def read(path: Path) -> HelperCertificates:
        return certify_helper(authority, read_helper_request(path), now=NOW)

    return of_file(read, msgspec.json.encode(made))(folder)


def _certificates(folder: Path) -> Prepared:
    authority = parties().authority
    given = HelperCertificates(
        authority_sha256=authority.fingerprint.hex(), **_helper().certificates._asdict()
    )

    def read(path: Path) -> dict[KeyUse, object]:
        found = read_helper_certificates(path)
        return {**check_helper(found, authority=authority.certificate, now=NOW)}

    return of_file(read, msgspec.json.encode(given))(folder)


def _signed() -> SignedAnswer:
    run = bytes.fromhex(RUN)
    answer = Answer(
        sequence=1,
        run=run,
        round_number=1,
        attempt=0,
        group=0,
        groups=1,
        element_count=4,
        bits=16,
        set_sha256=bytes(32),
        sum_sha256=bytes(32),
        recorded_ms=1,
        previous_sha256=first_head(run),
    )
    return sign_answer(answer, _helper())


def _answers(folder: Path) -> Prepared:
    authority = parties().authority.certificate

    def read(path: Path) -> None:
        check_list(read_answers(path), authorities=[authority], run=bytes.fromhex(RUN))

    return of_file(read, encode_line(_signed()))(folder)


def _sealed() -> bytes:
    return seal_seed(
        bytes(32),
        _TERMS.context(0, _NONCE),
        device=parties().device,
        helper=_helper().wrapping.certified,
    )


def _seeds(_folder: Path) -> Prepared:
    sender = parties().device.signing.certified
    return Prepared(lambda content: seed_header(content, sender), [_sealed()])


def _terms(_folder: Path) -> Prepared:
    whole = pb.UnmaskTerms(
        helper_version=1,
        run=_TERMS.run,
        round_number=1,
        groups=1,
        least_contributors=1,
        element_count=4,
        bits=16,
        base_sha256=bytes(32),
        plan_sha256=bytes(32),
        deadline_ms=1,
    )
    return Prepared(
        lambda content: terms_of(pb.UnmaskTerms.FromString(content)), [whole.SerializeToString()]
    )


def _members(_folder: Path) -> Prepared:
    member = pb.MaskMember(
        slot=0,
        lease_nonce=_NONCE,
        sealed_seed=_sealed(),
        signing_certificate=parties().device.certificates.signing,
    )

    def read(content: bytes) -> object:
        members = MemberSet(_TERMS, _helper(), parties().authority.certificate, NOW)
        members.add(pb.MaskMember.FromString(content))
        return members.question(least_contributors=1)

    return Prepared(read, [member.SerializeToString()])
