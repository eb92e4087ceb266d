"""A helper is certified by the authority itself, for nothing but being a helper."""

import time
from pathlib import Path

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import (
    CertificateError,
    KeyUse,
    certificate_der,
    check_certificate,
    hostnames_of,
    read_certificate,
)
from privacy.identities.helper_admission import (
    HelperCertificates,
    HelperRequest,
    caller_keys,
    certify_helper,
    check_helper,
    make_helper_request,
    read_helper_certificates,
    read_helper_request,
    run_of,
    write_helper_file,
)
from privacy.identities.issuing_key import make_issuing_key
from privacy.identities.party import Identity

RUN = "ab" * 16


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("authority") / "a", RUN)


@pytest.fixture(scope="module")
def request_file(tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority) -> Path:
    root = tmp_path_factory.mktemp("request")
    requests = Identity.create_requests(root / "identity", "helper")
    made = make_helper_request(
        requests, authority=authority.certificate, hostnames=["helper.example"]
    )
    write_helper_file(root / "request.json", made)
    return root / "request.json"


@pytest.fixture(scope="module")
def asked(request_file: Path) -> HelperRequest:
    return read_helper_request(request_file)


def test_a_request_becomes_three_certificates_of_a_helper(
    authority: CertificateAuthority, asked: HelperRequest, tmp_path: Path
) -> None:
    write_helper_file(tmp_path / "helper.json", certify_helper(authority, asked))

    given = read_helper_certificates(tmp_path / "helper.json")
    keys = check_helper(given, authority=authority.certificate, now=time.time())

    assert {use: (key.use, key.role) for use, key in keys.items()} == {
        use: (use, "helper") for use in KeyUse
    }
    assert hostnames_of(given.tls) == ["helper.example"]


def test_a_helper_never_passes_for_another_party(
    authority: CertificateAuthority, asked: HelperRequest
) -> None:
    given = certify_helper(authority, asked)

    for use in KeyUse:
        for role in ("device", "coordinator"):
            with pytest.raises(CertificateError, match=f"by a {role}"):
                check_certificate(
                    getattr(given, use),
                    ca=authority.certificate,
                    use=use,
                    role=role,
                    now=time.time(),
                )


def test_what_the_coordinators_issuing_key_certified_is_no_helper(
    asked: HelperRequest, tmp_path: Path
) -> None:
    own = CertificateAuthority.create(tmp_path / "a", RUN)
    issuer = make_issuing_key(tmp_path / "a", own)
    requests = Identity.create_requests(tmp_path / "identity", "helper")
    issued = issuer.issue_all(requests, name="helper", role="helper")
    given = HelperCertificates(authority_sha256=own.fingerprint.hex(), **issued._asdict())

    with pytest.raises(CertificateError, match="authority's own key"):
        check_helper(given, authority=own.certificate, now=time.time())


def test_a_request_for_another_authority_is_refused_with_both_fingerprints(
    authority: CertificateAuthority, asked: HelperRequest, tmp_path: Path
) -> None:
    other = CertificateAuthority.create(tmp_path / "a", "cd" * 16)

    with pytest.raises(CertificateError) as refused:
        certify_helper(other, asked)

    assert authority.fingerprint.hex() in str(refused.value)
    assert other.fingerprint.hex() in str(refused.value)


def test_an_ended_helper_is_refused(authority: CertificateAuthority, asked: HelperRequest) -> None:
    given = certify_helper(authority, asked)

    with pytest.raises(CertificateError, match="expired"):
        check_helper(given, authority=authority.certificate, now=time.time() + 366 * 86_400)


def test_a_coordinator_calls_with_a_key_that_is_no_devices(
    authority: CertificateAuthority,
) -> None:
    now = time.time()

    keys = caller_keys(authority, now=now)

    caller = read_certificate(certificate_der(keys.certificate_pem))
    assert (caller.use, caller.role) == (KeyUse.TLS, "caller")
    for days in (-6, 6):
        caller.check_time(now + days * 86_400)
    with pytest.raises(CertificateError):
        caller.check_time(now + 8 * 86_400)


def test_the_run_is_read_from_the_authoritys_certificate(
    authority: CertificateAuthority, asked: HelperRequest
) -> None:
    assert run_of(authority.certificate) == bytes.fromhex(RUN)
    with pytest.raises(CertificateError, match="names no run"):
        run_of(certify_helper(authority, asked).signing)
