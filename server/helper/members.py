"""The members of a set, checked as they arrive; nothing but seeds and digests is kept."""

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field

from privacy.identities.certificates import (
    CertificateError,
    CertifiedKey,
    KeyUse,
    check_certificate,
    read_certificate,
)
from privacy.identities.party import Identity
from privacy.masking.helper_answer import SetMember, set_digest
from privacy.masking.mask_form import MaskTerms
from privacy.masking.sealed_seed import open_seed, seed_header
from privacy.sealing.envelope import BodyHeader, MessageContext, UnsealError
from protos import helper_pb2 as pb
from protos.helper_refusals import HelperCode
from server.helper.answers import Question
from server.helper.refusal import Refusal

MOST_MEMBERS = 100_000
_NONCE_BYTES = 16

# In this order they are told: what is wrong with the set before what is wrong with a member.
_MEMBER_CODES = (
    HelperCode.CERTIFICATE_UNKNOWN,
    HelperCode.CERTIFICATE_EXPIRED,
    HelperCode.GROUP_DIFFERS,
    HelperCode.LEASE_DIFFERS,
    HelperCode.FORM_DIFFERS,
    HelperCode.BASE_DIFFERS,
    HelperCode.PLAN_DIFFERS,
    HelperCode.SEED_UNUSABLE,
    HelperCode.REPEATED_SEED,
)


@dataclass
class MemberSet:
    """The set of one call.

    Attributes:
        authority: The federation's authority, DER.
        now: When certificates must be valid, Unix seconds.
    """

    terms: MaskTerms
    helper: Identity
    authority: bytes
    now: float
    _members: list[SetMember] = field(default_factory=list)
    _seeds: dict[int, bytes] = field(default_factory=dict, repr=False)
    _devices: set[str] = field(default_factory=set)
    _refused: dict[HelperCode, set[int]] = field(default_factory=lambda: defaultdict(set))
    _repeats: set[HelperCode] = field(default_factory=set)

    def add(self, member: pb.MaskMember) -> None:
        """Check one member and open its seed; what is wrong with it is told by `question`.

        Raises:
            Refusal: If there are more members than any set has, or its nonce has another size.
        """
        slot, nonce = member.slot, member.lease_nonce
        if len(self._members) >= MOST_MEMBERS or len(nonce) != _NONCE_BYTES:
            raise Refusal(HelperCode.TERMS_MALFORMED)
        sealed_sha256 = hashlib.sha256(member.sealed_seed).digest()
        self._members.append(SetMember(slot, nonce, sealed_sha256))
        wrong = self._wrong_with(member)
        if wrong is not None:
            self._refused[wrong].add(slot)

    def question(self, *, least_contributors: int) -> Question:
        """Return what is asked.

        Raises:
            Refusal: If the set is too small or repeats somebody, or a member is not what the terms
                say; then it names the members' slots.
        """
        slots = {member.slot for member in self._members}
        nonces = frozenset(member.lease_nonce for member in self._members)
        if len(self._members) < least_contributors:
            raise Refusal(HelperCode.TOO_FEW)
        if len(slots) != len(self._members) or len(nonces) != len(self._members):
            raise Refusal(HelperCode.REPEATED_LEASE)
        if HelperCode.REPEATED_DEVICE in self._repeats:
            raise Refusal(HelperCode.REPEATED_DEVICE)
        self._refuse_repeated_seeds()
        for code in _MEMBER_CODES:
            if self._refused.get(code):
                raise Refusal(code, self._refused[code])
        return Question(
            run=self.terms.run,
            round_number=self.terms.round_number,
            group=self.terms.group,
            form=self.terms.form,
            set_sha256=set_digest(self._members),
            seeds=self._seeds,
            nonces=nonces,
            devices=frozenset(self._devices),
        )

    def _refuse_repeated_seeds(self) -> None:
        holders: dict[bytes, list[int]] = defaultdict(list)
        for slot, seed in self._seeds.items():
            holders[seed].append(slot)
        for shared in holders.values():
            if len(shared) > 1:
                self._refused[HelperCode.REPEATED_SEED].update(shared)

    def _wrong_with(self, member: pb.MaskMember) -> HelperCode | None:
        """Return why a member cannot be summed; None if its seed was opened and is kept."""
        try:
            sender = read_certificate(member.signing_certificate)
            sender = self._checked(member, sender)
        except CertificateError:
            return HelperCode.CERTIFICATE_UNKNOWN
        if not sender.not_before <= self.now <= sender.not_after:
            return HelperCode.CERTIFICATE_EXPIRED
        if sender.name in self._devices:
            self._repeats.add(HelperCode.REPEATED_DEVICE)
        self._devices.add(sender.name)
        if member.slot % self.terms.form.groups != self.terms.group:
            return HelperCode.GROUP_DIFFERS
        return self._opened(member, sender)

    def _checked(self, member: pb.MaskMember, sender: CertifiedKey) -> CertifiedKey:
        """Return the device's key if the authority certified it; dates are told apart."""
        within = min(max(self.now, sender.not_before), sender.not_after)
        return check_certificate(
            member.signing_certificate,
            ca=self.authority,
            use=KeyUse.SIGNING,
            role="device",
            now=within,
        )

    def _opened(self, member: pb.MaskMember, sender: CertifiedKey) -> HelperCode | None:
        context = self.terms.context(member.slot, member.lease_nonce)
        try:
            header = seed_header(member.sealed_seed, sender)
            differs = _difference(header, context)
            if differs is not None:
                return differs
            seed = open_seed(member.sealed_seed, context, helper=self.helper, sender=sender)
        except UnsealError:
            return HelperCode.SEED_UNUSABLE
        self._seeds[member.slot] = seed
        return None


def _difference(header: BodyHeader, wanted: MessageContext) -> HelperCode | None:
    """Return what a seed is bound to beside what it should be."""
    if header.base_sha256 != wanted.base_sha256:
        return HelperCode.BASE_DIFFERS
    if header.plan_sha256 != wanted.plan_sha256:
        return HelperCode.PLAN_DIFFERS
    if header.schema_sha256 != wanted.schema_sha256:
        return HelperCode.FORM_DIFFERS
    lease = ("run", "round_number", "slot", "lease_nonce", "deadline_ms")
    if any(getattr(header, name) != getattr(wanted, name) for name in lease):
        return HelperCode.LEASE_DIFFERS
    return None
