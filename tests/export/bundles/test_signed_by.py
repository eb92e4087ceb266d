"""A signature under an issuing key is held against the authority, or against that key alone."""

import time
from pathlib import Path

import pytest

from export.bundles.signed_by import UntrustedError, check_signature
from privacy.identities.authority import CertificateAuthority
from privacy.identities.issuing_key import make_issuing_key
from privacy.identities.signatures import Purpose
from tests.privacy.conftest import RUN, enrol


@pytest.mark.slow
def test_an_issuing_keys_certificate_can_stand_where_the_authoritys_does(tmp_path: Path) -> None:
    now = time.time()
    authority = CertificateAuthority.create(tmp_path / "ca", RUN.hex(), now=now)
    former = make_issuing_key(tmp_path / "ca", authority, now=now)
    signer = enrol(former, tmp_path / "coordinator", "coordinator", "coordinator", now=now)
    current = make_issuing_key(tmp_path / "ca", authority, now=now)
    signature = signer.sign(b"manifest", purpose=Purpose.BUNDLE)

    def check(trusted: bytes | None) -> bool:
        given = signer.certificates.signing
        return check_signature(
            b"manifest", signature, given, purpose=Purpose.BUNDLE, authority=trusted
        ).is_trusted

    assert check(authority.certificate)
    assert check(former.issuing)
    assert not check(None)
    # A reader told to trust the newest key alone refuses what the one before signed.
    with pytest.raises(UntrustedError, match="not issued by"):
        check(current.issuing)
