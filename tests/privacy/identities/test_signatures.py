"""A signature holds for one key, one message and one purpose."""

import pytest

from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose, SignatureError, verify
from tests.privacy.conftest import Federation


@pytest.fixture
def signer(federation: Federation) -> Identity:
    return federation.coordinator


@pytest.mark.parametrize("purpose", Purpose)
def test_a_signature_verifies_for_its_purpose_only(signer: Identity, purpose: Purpose) -> None:
    signature = signer.sign(b"message", purpose=purpose)
    public_key = signer.signing.certified.public_key

    verify(public_key, b"message", signature, purpose=purpose)
    for other in set(Purpose) - {purpose}:
        with pytest.raises(SignatureError, match=f"the {other} was not signed by this key"):
            verify(public_key, b"message", signature, purpose=other)


@pytest.mark.parametrize("signature", [b"", b"x", bytes(384), bytes(512)])
def test_rubbish_is_no_signature(signer: Identity, signature: bytes) -> None:
    with pytest.raises(SignatureError):
        verify(signer.signing.certified.public_key, b"message", signature, purpose=Purpose.RELEASE)


def test_another_message_or_key_is_refused(federation: Federation, signer: Identity) -> None:
    signature = signer.sign(b"message", purpose=Purpose.RELEASE)

    with pytest.raises(SignatureError):
        verify(signer.signing.certified.public_key, b"massage", signature, purpose=Purpose.RELEASE)
    with pytest.raises(SignatureError):
        verify(
            federation.device.signing.certified.public_key,
            b"message",
            signature,
            purpose=Purpose.RELEASE,
        )


def test_a_tls_key_verifies_nothing(signer: Identity) -> None:
    with pytest.raises(SignatureError, match="must be checked with an RSA key"):
        verify(signer.tls.certified.public_key, b"m", b"s", purpose=Purpose.RELEASE)
