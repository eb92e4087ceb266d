"""A seed opens for the helper alone, and for the one vector that it was sealed for."""

import time
from dataclasses import dataclass, replace

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import Role
from privacy.identities.party import Identity
from privacy.masking.mask_form import MOST_ELEMENTS, MaskForm
from privacy.masking.sealed_seed import (
    SEALED_SEED_BYTES,
    check_seed,
    new_seed,
    open_seed,
    seal_seed,
    seed_context,
    seed_header,
)
from privacy.sealing.envelope import Direction, MessageContext, UnsealError, open_sealed, seal

FORM = MaskForm(element_count=10, bits=24, attempt=0, groups=1, least_contributors=1)
UPDATE = MessageContext(
    direction=Direction.UPLINK,
    run=b"r" * 16,
    round_number=3,
    slot=5,
    lease_nonce=b"n" * 16,
    base_sha256=b"b" * 32,
    schema_sha256=b"s" * 32,
    plan_sha256=b"p" * 32,
    deadline_ms=1000,
)
CONTEXT = seed_context(UPDATE, FORM)
SEED = bytes(range(32))


@dataclass(frozen=True)
class Parties:
    device: Identity
    other: Identity
    helper: Identity
    coordinator: Identity


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    root = tmp_path_factory.mktemp("seeds")
    authority = CertificateAuthority.create(root / "authority", "ab" * 16)

    def certified(name: str, role: Role) -> Identity:
        requests = Identity.create_requests(root / name, name)
        issued = authority.issue_all(requests, name=name, role=role)
        ca, now = authority.certificate, time.time()
        return Identity.install(root / name, issued, ca=ca, role=role, now=now)

    return Parties(
        device=certified("device", "device"),
        other=certified("other", "device"),
        helper=certified("helper", "helper"),
        coordinator=certified("coordinator", "coordinator"),
    )


@pytest.fixture(scope="module")
def sealed(parties: Parties) -> bytes:
    recipient = parties.helper.wrapping.certified
    return seal_seed(SEED, CONTEXT, device=parties.device, helper=recipient)


def test_the_helper_opens_what_a_device_sealed(parties: Parties, sealed: bytes) -> None:
    sender = parties.device.signing.certified

    assert open_seed(sealed, CONTEXT, helper=parties.helper, sender=sender) == SEED
    # 576 + 254 + 512 before the payload of 32, and its tag of 16.
    assert len(sealed) == SEALED_SEED_BYTES == 1390


def test_the_coordinator_that_carries_a_seed_cannot_open_it(
    parties: Parties, sealed: bytes
) -> None:
    sender = parties.device.signing.certified

    check_seed(sealed, CONTEXT, sender)
    with pytest.raises(UnsealError):
        open_seed(sealed, CONTEXT, helper=parties.coordinator, sender=sender)


@pytest.mark.parametrize(
    "other",
    [
        seed_context(UPDATE, replace(FORM, element_count=11)),
        seed_context(UPDATE, replace(FORM, bits=32)),
        seed_context(UPDATE, replace(FORM, attempt=1)),
        seed_context(UPDATE, replace(FORM, groups=2)),
        seed_context(UPDATE, replace(FORM, least_contributors=2)),
        replace(CONTEXT, slot=6),
        replace(CONTEXT, base_sha256=bytes(32)),
        replace(CONTEXT, plan_sha256=bytes(32)),
        replace(CONTEXT, deadline_ms=1001),
    ],
)
def test_a_seed_fits_the_one_vector_that_it_was_sealed_for(
    parties: Parties, sealed: bytes, other: MessageContext
) -> None:
    sender = parties.device.signing.certified

    with pytest.raises(UnsealError):
        check_seed(sealed, other, sender)
    with pytest.raises(UnsealError):
        open_seed(sealed, other, helper=parties.helper, sender=sender)


def test_a_seed_counts_as_that_of_its_signer_alone(parties: Parties, sealed: bytes) -> None:
    for sender in (parties.other.signing.certified, parties.device.wrapping.certified):
        with pytest.raises(UnsealError):
            seed_header(sealed, sender)


def test_an_update_does_not_pass_for_a_seed_nor_a_seed_for_an_update(
    parties: Parties, sealed: bytes
) -> None:
    recipient, sender = parties.helper.wrapping.certified, parties.device.signing.certified
    update = replace(CONTEXT, direction=Direction.UPLINK)
    message = seal(SEED, update, sender=parties.device, recipient=recipient)

    with pytest.raises(UnsealError):
        seed_header(b"".join(map(bytes, message.views())), sender)
    with pytest.raises(UnsealError):
        open_sealed([sealed], update, payload_bytes=32, recipient=parties.helper, sender=sender)


def test_seeds_are_never_the_same() -> None:
    assert len({new_seed() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "changes",
    [
        {"element_count": 0},
        {"element_count": MOST_ELEMENTS + 1},
        {"bits": 17},
        {"attempt": -1},
        {"groups": 0},
        {"least_contributors": 0},
    ],
)
def test_a_form_out_of_its_bounds_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        replace(FORM, **changes)
