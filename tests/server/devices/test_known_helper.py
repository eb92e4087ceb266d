"""A federation of masked sums does nothing without a helper that its authority certified."""

import time
from pathlib import Path

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import CertificateError, fingerprint
from privacy.identities.helper_admission import (
    certify_helper,
    make_helper_request,
    write_helper_file,
)
from privacy.identities.invite import read_invite
from privacy.identities.party import Identity
from server.config.federation import FederationConfig, parse_config
from server.devices.known_helper import HelperMissingError, known_helper
from server.operating.founding import found, write_invites
from server.records.folder import ServerFolder
from tests.integration.masked_federation import masked_settings

DAY_S = 86_400


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> tuple[ServerFolder, FederationConfig]:
    root = tmp_path_factory.mktemp("federation") / "masked"
    config = found(root, masked_settings(7450), [])
    return ServerFolder(root), config


def admit(folder: ServerFolder, authority: CertificateAuthority, keys: Path) -> None:
    """Put a helper's certificates into a federation's folder."""
    requests = Identity.create_requests(keys, "helper")
    request = make_helper_request(requests, authority=authority.certificate, hostnames=["h.test"])
    write_helper_file(folder.helper, certify_helper(authority, request))


def test_invites_carry_the_helper_that_the_authority_certified(
    founded: tuple[ServerFolder, FederationConfig], tmp_path: Path
) -> None:
    folder, config = founded
    folder.helper.unlink(missing_ok=True)
    with pytest.raises(HelperMissingError, match="sotto-server admit-helper"):
        write_invites(folder, config, tmp_path / "invites")

    admit(folder, CertificateAuthority.load(folder.authority), tmp_path / "keys")
    (invite,) = write_invites(folder, config, tmp_path / "invites")

    helper = known_helper(folder, config)
    assert helper is not None
    assert fingerprint(read_invite(invite).helper or b"") == helper.sha256


def test_another_authoritys_helper_and_one_whose_year_is_over_are_refused(
    founded: tuple[ServerFolder, FederationConfig], tmp_path: Path
) -> None:
    folder, config = founded
    other = CertificateAuthority.create(tmp_path / "authority", "ab" * 16)
    admit(folder, other, tmp_path / "other")
    with pytest.raises(CertificateError, match="must be for the authority"):
        known_helper(folder, config)

    admit(folder, CertificateAuthority.load(folder.authority), tmp_path / "keys")
    with pytest.raises(CertificateError, match="expired"):
        known_helper(folder, config, now=time.time() + 366 * DAY_S)


def test_settings_name_a_helper_where_there_are_masks_and_nowhere_else(
    founded: tuple[ServerFolder, FederationConfig],
) -> None:
    folder, _ = founded
    text = masked_settings(7450)
    without = parse_config(text.partition("[helper]")[0], "settings")

    with pytest.raises(HelperMissingError, match=r"add \[helper\] with its address"):
        known_helper(folder, without)
    with pytest.raises(ValueError, match="helper must be absent without masks"):
        parse_config(
            text.partition("[privacy]")[0]
            + '[privacy]\nmode = "none"\nclipping_norm = 1.0\n'
            + "[aggregation]"
            + text.partition("[aggregation]")[2],
            "settings",
        )
