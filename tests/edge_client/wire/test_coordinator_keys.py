"""A device follows the coordinator's keys, and nobody else's."""

import asyncio
import time
from pathlib import Path

import pytest

from edge_client.agent.lease import serve_lease
from edge_client.folder.layout import CoordinatorKeys, DeviceFolder, Enrolment
from edge_client.jobs.job import Trained
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import Certificates
from privacy.identities.issuing_key import make_issuing_key
from privacy.identities.party import Identity
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import (
    MESSAGE_ID,
    StandInTrainer,
    StandInTransport,
    make_device,
    make_lease,
    sign_lease,
)
from tests.privacy.conftest import RUN, enrol

SIGNERS: dict[bytes, Identity] = {}
"""Those whose signing certificates the tests name."""
TRAINED = Trained(example_count=12, message_id=MESSAGE_ID)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("ours") / "authority", RUN.hex())


@pytest.fixture(scope="module")
def ours(
    tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority
) -> list[Certificates]:
    """Return two generations of the coordinator's certificates."""
    root, now = tmp_path_factory.mktemp("coordinator"), time.time()
    made = [
        enrol(authority, root / name, "coordinator", "coordinator", now=now)
        for name in ("before", "after")
    ]
    SIGNERS.update({one.certificates.signing: one for one in made})
    return [one.certificates for one in made]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    root = tmp_path_factory.mktemp("foreign")
    other = CertificateAuthority.create(root / "authority", RUN.hex())
    return enrol(
        other, root / "identity", "coordinator", "coordinator", now=time.time()
    ).certificates


def serve(
    folder: Path, authority: CertificateAuthority, known: Certificates, named: Certificates | None
) -> tuple[CoordinatorKeys, StandInTransport]:
    """Serve one lease that names keys; return those that the device then keeps."""
    device = make_device(folder, StandInTrainer(TRAINED))
    device.folder.save(
        Enrolment(
            client_name="device-0001",
            run=RUN.hex(),
            device_address="localhost:1",
            ca_certificate=authority.certificate,
        )
    )
    device.folder.save_coordinator(CoordinatorKeys(wrapping=known.wrapping, signing=known.signing))
    lease, transport = make_lease(), StandInTransport()
    sign_lease(lease, SIGNERS.get((named or known).signing), run=RUN.hex())
    if named is not None:
        lease.coordinator.CopyFrom(
            wire.Certificates(wrapping=named.wrapping, signing=named.signing)
        )
    asyncio.run(serve_lease(lease, device, transport))
    return DeviceFolder(folder).coordinator(), transport


def test_the_keys_of_a_lease_are_kept_before_its_model_is_fetched(
    tmp_path: Path, authority: CertificateAuthority, ours: list[Certificates]
) -> None:
    kept, transport = serve(tmp_path, authority, known=ours[0], named=ours[1])

    assert kept == CoordinatorKeys(wrapping=ours[1].wrapping, signing=ours[1].signing)
    assert transport.named == ["fetch_model", "upload", "commit"]


def test_keys_that_began_before_those_met_are_refused(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    # Valid for weeks to come; but the device has met what replaced them.
    now = time.time()
    stolen = enrol(authority, tmp_path / "stolen", "coordinator", "coordinator", now=now - 60)
    newer = enrol(authority, tmp_path / "newer", "coordinator", "coordinator", now=now)

    kept, transport = serve(
        tmp_path / "device", authority, known=newer.certificates, named=stolen.certificates
    )

    assert kept.signing == newer.certificates.signing
    assert transport.calls == [("refuse_plan", make_lease().nonce, "certificate_unusable")]


def test_what_a_former_issuing_key_certifies_is_refused_however_new_it_is(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    now = time.time()
    stolen = make_issuing_key(tmp_path, authority, now=now - 60)
    issuer = make_issuing_key(tmp_path, authority, now=now - 60)
    ours = enrol(issuer, tmp_path / "ours", "coordinator", "coordinator", now=now - 30)
    thiefs = enrol(stolen, tmp_path / "thiefs", "coordinator", "coordinator", now=now)

    kept, transport = serve(
        tmp_path / "device", authority, known=ours.certificates, named=thiefs.certificates
    )

    assert kept.signing == ours.certificates.signing
    assert transport.calls == [("refuse_plan", make_lease().nonce, "certificate_unusable")]


def test_an_older_coordinator_names_none(
    tmp_path: Path, authority: CertificateAuthority, ours: list[Certificates]
) -> None:
    kept, transport = serve(tmp_path, authority, known=ours[0], named=None)

    assert kept.signing == ours[0].signing
    assert transport.named == ["fetch_model", "upload", "commit"]


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_keys_that_the_authority_did_not_certify_end_the_lease(
    tmp_path: Path,
    authority: CertificateAuthority,
    ours: list[Certificates],
    foreign: Certificates,
    *,
    swapped: bool,
) -> None:
    # Another federation's keys, or the right ones in each other's place.
    named = Certificates(b"", ours[1].signing, ours[1].wrapping) if swapped else foreign

    kept, transport = serve(tmp_path, authority, known=ours[0], named=named)

    assert kept.signing == ours[0].signing
    assert transport.calls == [("refuse_plan", make_lease().nonce, "certificate_unusable")]
