"""Tell a helper by its certificate, which the device's owner pins.

The authority certifies a helper with its own key, and the coordinator hands the certificate to
devices. One party that holds both could make a helper of its own, so the certificate that the owner
pinned decides, most often the one that the invite brought. After the helper's renewal, once
a year, the owner pins the new one beside it.
"""

from collections.abc import Container

from privacy.identities.certificates import CertifiedKey, KeyUse
from privacy.identities.helper_admission import check_helper_key


def read_helper(certificate: bytes, *, authority: bytes, now: float | None) -> CertifiedKey:
    """Return the wrapping key of a helper after checking its certificate; both are DER.

    At ``now``, Unix seconds, it must be valid, if given. Trust it only where it is pinned.

    Raises:
        CertificateError: If the authority did not certify it itself for a helper.
    """
    return check_helper_key(certificate, authority=authority, use=KeyUse.WRAPPING, now=now)


def helper_in_words(
    certificate: bytes, helpers: Container[str] | None, *, authority: bytes
) -> tuple[bool, str]:
    """Return whether the owner pinned the helper of an invite, and a line on what that means.

    ``certificate`` is what the invite brought; empty if it named no helper.

    Raises:
        CertificateError: If it is no helper's.
    """
    if not certificate:
        return True, "the invite named none: no update of this device goes under masks"
    pin = read_helper(certificate, authority=authority, now=None).sha256.hex()
    if helpers is None or pin not in helpers:
        return False, (
            f"the invite named the helper {pin}, which floor.toml does not pin: plans of mode "
            "masked are refused; if you know who runs it, add it to helpers there"
        )
    return True, (
        f"the helper {pin} holds this device's masks: ask who runs it whether that is its "
        "certificate, for it must be somebody else than runs the coordinator"
    )
