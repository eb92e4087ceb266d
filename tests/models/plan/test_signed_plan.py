"""A plan's signature holds for one plan in one attempt, and for nobody but the coordinator."""

import hashlib
import struct
from dataclasses import dataclass

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from models.plan.signed_plan import SignedPlan, SignedPlanError, sign_plan
from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from tests.privacy.conftest import RUN, enrol

PLAN = b'{"version":1}'


@dataclass(frozen=True)
class Federation:
    """Hold an authority with two parties that it certified."""

    authority: CertificateAuthority
    coordinator: Identity
    device: Identity


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    folder = tmp_path_factory.mktemp("federation")
    authority = CertificateAuthority.create(folder / "authority", RUN.hex())
    return Federation(
        authority,
        enrol(authority, folder / "coordinator", "coordinator", "coordinator"),
        enrol(authority, folder / "device", "device-0001", "device"),
    )


@pytest.fixture
def told(federation: Federation) -> SignedPlan:
    """Return a plan of attempt 2 at round 7."""
    coordinator = federation.coordinator
    signature = sign_plan(PLAN, coordinator, run=RUN.hex(), round_number=7, attempt=2)
    return SignedPlan(
        run=RUN.hex(),
        round_number=7,
        attempt=2,
        plan=PLAN,
        signature=signature,
        certificate=coordinator.certificates.signing,
    )


def test_the_signature_is_pss_over_run_round_attempt_and_digest(
    federation: Federation, told: SignedPlan
) -> None:
    digest = hashlib.sha256(PLAN).digest()
    message = b"sotto plan\0" + RUN + struct.pack("!II", 7, 2) + digest
    key = federation.coordinator.signing.certified.public_key
    assert isinstance(key, rsa.RSAPublicKey)

    # Raises unless it holds.
    key.verify(told.signature, message, padding.PSS(padding.MGF1(SHA256()), 32), SHA256())

    assert told.plan_sha256 == digest
    assert told.check(federation.authority.certificate).name == "coordinator"


def test_what_is_kept_proves_as_much_when_it_is_read_again(
    federation: Federation, told: SignedPlan
) -> None:
    again = SignedPlan.decode(told.encode())

    assert again == told
    assert again.check(federation.authority.certificate).role == "coordinator"


@pytest.mark.parametrize(
    "change",
    [
        {"run": "00" * 16},
        {"round_number": 8},
        {"attempt": 3},
        {"plan": b'{"version":1} '},
        {"signature": b""},
        {"signature": bytes(384)},
        {"certificate": b"none"},
        {"run": "not hex"},
        {"round_number": 1 << 32},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_is_refused(
    federation: Federation, told: SignedPlan, change: dict[str, object]
) -> None:
    with pytest.raises(SignedPlanError, match="cannot be trusted"):
        msgspec.structs.replace(told, **change).check(federation.authority.certificate)


def test_a_device_signs_no_plan(federation: Federation, told: SignedPlan) -> None:
    device = federation.device
    own = msgspec.structs.replace(
        told,
        signature=sign_plan(PLAN, device, run=RUN.hex(), round_number=7, attempt=2),
        certificate=device.certificates.signing,
    )

    with pytest.raises(SignedPlanError, match="coordinator's signing key"):
        own.check(federation.authority.certificate)


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff", b"[" * 100_000, b"{}"])
def test_a_damaged_file_is_told_as_one(damaged: bytes) -> None:
    with pytest.raises(SignedPlanError, match="cannot be read"):
        SignedPlan.decode(damaged)
