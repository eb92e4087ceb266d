"""The helper of a federation, as its folder names it."""

import time

from privacy.identities.authority import read_authority_certificate
from privacy.identities.certificates import CertificateError, CertifiedKey, KeyUse
from privacy.identities.helper_admission import check_helper, read_helper_certificates
from privacy.noise.masked_settings import MaskedNoise
from server.config.federation import FederationConfig
from server.records.folder import ServerFolder


class HelperMissingError(Exception):
    """Raised when a federation of masked sums names no helper; the text says what to do."""


def known_helper(
    folder: ServerFolder, config: FederationConfig, *, now: float | None = None
) -> CertifiedKey | None:
    """Return the helper's wrapping key, checked; None where the mode masks nothing.

    Args:
        now: When its certificates must be valid, Unix seconds; the clock's if None.

    Raises:
        HelperMissingError: If the settings name no address, or the folder has no certificates.
        CertificateError: If the federation's authority did not certify them for a helper, or they
            have ended.
        KeyFileError: If the authority's certificate cannot be read.
    """
    if not isinstance(config.privacy, MaskedNoise):
        return None
    if config.helper is None:
        raise HelperMissingError(
            f'privacy.mode = "masked" needs a helper: add [helper] with its address to '
            f"{folder.config}"
        )
    try:
        given = read_helper_certificates(folder.helper)
    except FileNotFoundError:
        raise HelperMissingError(
            f"{folder.helper} is missing: the helper's certificates, which `sotto-server "
            "admit-helper` makes of the helper's request"
        ) from None
    moment = time.time() if now is None else now
    try:
        keys = check_helper(
            given, authority=read_authority_certificate(folder.authority), now=moment
        )
    except CertificateError as error:
        raise CertificateError(f"{folder.helper}: {error}") from None
    return keys[KeyUse.WRAPPING]
