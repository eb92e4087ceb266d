"""Tell a helper by its key, which the device's owner pins: certificates are renewed, the key stays.

The coordinator hands every device the helper's certificate, so a captured one could hand out its
own. What decides is the key that the owner pinned, most often the one that the invite named.
"""

from collections.abc import Container

from privacy.identities.certificates import CertificateError, CertifiedKey, KeyUse, read_certificate
from privacy.identities.keys import public_key_sha256


def read_helper(der: bytes) -> CertifiedKey:
    """Return the key of a helper's wrapping certificate; trust it only where it is pinned.

    Raises:
        CertificateError: If the bytes are no certificate of a helper's wrapping key.
    """
    certified = read_certificate(der)
    if (certified.use, certified.role) != (KeyUse.WRAPPING, "helper"):
        raise CertificateError(
            f"certificate of {certified.name} must be for wrapping by a helper, got one for "
            f"{certified.use.value} by a {certified.role}"
        )
    return certified


def helper_pin(helper: CertifiedKey) -> str:
    """Return what the owner's floor pins: SHA-256 of the helper's wrapping key, 64 hex digits."""
    return public_key_sha256(helper.public_key).hex()


def helper_in_words(certificate: bytes, helpers: Container[str] | None) -> tuple[bool, str]:
    """Return whether the owner pinned the helper of an invite, and a line on what that means.

    ``certificate`` is the chain, DER, that the invite brought; empty if it named none.

    Raises:
        CertificateError: If it is no helper's.
    """
    if not certificate:
        return True, "the invite named none: no update of this device goes under masks"
    pin = helper_pin(read_helper(certificate))
    if helpers is None or pin not in helpers:
        return False, (
            f"the invite named the helper with key {pin}, which floor.toml does not pin: plans of "
            "mode masked are refused; if you know whose key it is, add it to helpers there"
        )
    return True, (
        f"the helper with key {pin} holds this device's masks: ask it whether that is its key, for "
        "it must be somebody else's than the coordinator's"
    )
