"""Replace what certifies a federation's keys: the issuing key, or the authority itself.

Both make new keys for the coordinator too, so that devices meet the new order at the next
handshake. A helper is certified here as well, for only the authority's own key may. A command that
was cut short is run again; a coordinator that starts in between takes up what is there.
"""

import shutil
from pathlib import Path

from privacy.foundation.atomic_files import sync_folder
from privacy.identities.authority import CertificateAuthority
from privacy.identities.helper_admission import (
    HelperCertificates,
    HelperRequest,
    certify_helper,
    read_helper_request,
    write_helper_file,
)
from privacy.identities.issuing_key import load_issuer, make_issuing_key
from privacy.identities.succession import write_former
from server.config.federation import FederationConfig
from server.devices.own_keys import rotate_keys
from server.operating.founding import FoundingError
from server.records.folder import ServerFolder

_KEY_FILE = "authority.key"


def rotate_issuing_key(
    folder: ServerFolder,
    config: FederationConfig,
    *,
    key_file: Path | None,
    passphrase: bytes | None,
) -> CertificateAuthority:
    """Have the authority certify a new issuing key, and with that the coordinator's new keys.

    Raises:
        FoundingError: If the authority's key is not where it is said to be.
        CertificateError: If the authority may certify no issuing key, or has ended.
        KeyFileError: If a key cannot be read.
        OSError: If the folder cannot be written.
    """
    authority = _authority(folder.authority, key_file, passphrase)
    issuer = make_issuing_key(folder.authority, authority)
    rotate_keys(folder, config, hostnames=[])
    return issuer


def replace_authority(
    folder: ServerFolder,
    config: FederationConfig,
    run: str,
    *,
    key_file: Path | None,
    passphrase: bytes | None,
    new_passphrase: bytes | None,
) -> CertificateAuthority:
    """Make a new authority that the one before names as its successor, and new keys under it.

    The former authority's folder stays beside the new one, for the operator to destroy: nothing
    needs its key again.

    Raises:
        FoundingError: If the former folder of an earlier replacement is still there, or the
            authority's key is not where it is said to be.
        KeyFileError: If a key cannot be read.
        OSError: If the folder cannot be written.
    """
    former = folder.former_authority
    building = folder.authority.with_name(".authority.new")
    if building.exists() and not folder.authority.exists():
        # An earlier call was cut short between its two renames: the statement is made.
        return _take_up(building, folder, config)
    if former.exists():
        raise FoundingError(
            f"{former} is still there from the replacement before: destroy it, then try again"
        )
    authority = _authority(folder.authority, key_file, passphrase)
    shutil.rmtree(building, ignore_errors=True)
    successor = CertificateAuthority.create(building, run, passphrase=new_passphrase)
    write_former(building, folder.authority, authority, successor.certificate)
    make_issuing_key(building, successor)
    folder.authority.rename(former)
    return _take_up(building, folder, config)


def admit_helper(
    folder: ServerFolder, request: Path, *, key_file: Path | None, passphrase: bytes | None
) -> tuple[HelperRequest, HelperCertificates]:
    """Certify a helper with the authority's own key and keep its certificates in the folder.

    Return both, for people to compare the request's digest with the helper's owner.

    Raises:
        FoundingError: If the authority's key is not where it is said to be.
        CertificateError: If the request is none, or for another authority.
        KeyFileError: If a key cannot be read.
        OSError: If the request cannot be read or the folder not written.
    """
    authority = _authority(folder.authority, key_file, passphrase)
    asked = read_helper_request(request)
    admitted = certify_helper(authority, asked)
    write_helper_file(folder.helper, admitted)
    return asked, admitted


def _take_up(
    building: Path, folder: ServerFolder, config: FederationConfig
) -> CertificateAuthority:
    building.rename(folder.authority)
    sync_folder(folder.root)
    rotate_keys(folder, config, hostnames=[])
    return load_issuer(folder.authority)


def _authority(
    folder: Path, key_file: Path | None, passphrase: bytes | None
) -> CertificateAuthority:
    path = key_file or folder / _KEY_FILE
    if not path.exists():
        raise FoundingError(
            f"{path} is not there: fetch the authority's key from where you keep it, and name the "
            "file with --authority-key"
        )
    return CertificateAuthority.load(folder, passphrase=passphrase, key_file=path)
