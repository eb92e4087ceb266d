"""Issuing keys and authorities are replaced in a folder, whatever cuts it short."""

import shutil
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from privacy.identities.authority import CertificateAuthority, read_authority_certificate
from privacy.identities.certificates import KeyUse, check_certificate
from privacy.identities.issuing_key import load_issuer
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity
from privacy.identities.succession import read_former, successor_of
from server.config.federation import FederationConfig, preset_text, read_config
from server.devices.own_keys import are_of, certify_coordinator, rotate_keys
from server.operating.authorities import replace_authority, rotate_issuing_key
from server.operating.founding import FoundingError, found
from server.records.folder import ServerFolder

RUN = "ab" * 16
Founded = tuple[ServerFolder, FederationConfig]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "f"
    found(root, preset_text("keyboard-tiny"), [], passphrase=b"words")
    return root


@pytest.fixture
def founded(template: Path, tmp_path: Path) -> Founded:
    root = tmp_path / "f"
    shutil.copytree(template, root)
    return ServerFolder(root), read_config(root / "federation.toml")


def replaced(founded: Founded, passphrase: bytes | None = b"words") -> CertificateAuthority:
    folder, config = founded
    return replace_authority(
        folder, config, RUN, key_file=None, passphrase=passphrase, new_passphrase=None
    )


def follow(folder: ServerFolder, ca: bytes) -> bytes:
    """Return where the statements that a coordinator shows lead a device."""
    shown = x509.load_pem_x509_certificates(read_former(folder.authority).statements)
    ders = [certificate.public_bytes(Encoding.DER) for certificate in shown]
    return successor_of(ca, ders, now=time.time())


@pytest.mark.slow
def test_a_new_issuing_key_needs_the_authoritys_key_and_its_passphrase(founded: Founded) -> None:
    folder, config = founded
    before, met = load_issuer(folder.authority), Identity.load(folder.identity)
    key = folder.authority / "authority.key"

    with pytest.raises(KeyFileError, match="is encrypted"):
        rotate_issuing_key(folder, config, key_file=None, passphrase=None)
    away = key.rename(folder.root.parent / "authority.key")
    with pytest.raises(FoundingError, match="--authority-key"):
        rotate_issuing_key(folder, config, key_file=None, passphrase=b"words")
    assert load_issuer(folder.authority).issuing == before.issuing
    issuer = rotate_issuing_key(folder, config, key_file=away, passphrase=b"words")

    now_used = Identity.load(folder.identity)
    assert are_of(now_used, issuer)
    assert not are_of(now_used, before)
    assert now_used.authority == met.authority
    assert now_used.tls.certified.generation > met.tls.certified.generation


@pytest.mark.slow
def test_whoever_trusts_the_former_authority_is_led_to_the_new_one(founded: Founded) -> None:
    folder, _ = founded
    first = read_authority_certificate(folder.authority)

    second = replaced(founded)

    assert follow(folder, first) == second.certificate
    assert are_of(Identity.load(folder.identity), second)
    with pytest.raises(FoundingError, match=r"authority\.former is still there"):
        replaced(founded, passphrase=None)
    shutil.rmtree(folder.former_authority)
    third = replaced(founded, passphrase=None)
    assert follow(folder, first) == follow(folder, second.certificate) == third.certificate


@pytest.mark.slow
def test_a_replacement_that_was_cut_short_is_finished_by_the_next_call(
    founded: Founded, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = founded
    first = read_authority_certificate(folder.authority)
    with monkeypatch.context() as patched:
        patched.setattr("server.operating.authorities._take_up", _crash)
        with pytest.raises(KeyboardInterrupt):
            replaced(founded)
    assert not folder.authority.exists()

    second = replaced(founded)

    assert follow(folder, first) == second.certificate
    assert are_of(Identity.load(folder.identity), second)


@pytest.mark.slow
def test_a_federation_without_an_issuing_key_rotates_and_gets_one_with_its_next_authority(
    founded: Founded,
) -> None:
    folder, config = founded
    # As it was founded before: the authority signs, and its key lies open on the coordinator.
    shutil.rmtree(folder.authority)
    older = CertificateAuthority.create(folder.authority, RUN)
    certify_coordinator(folder, older, config, [])

    direct = rotate_keys(folder, config, hostnames=[])
    assert direct.tls.certified.issuing_not_before == 0
    successor = replaced(founded, passphrase=None)

    assert follow(folder, older.certificate) == successor.certificate
    der, now = Identity.load(folder.identity).certificates.signing, time.time()
    check_certificate(
        der, ca=successor.certificate, use=KeyUse.SIGNING, role="coordinator", now=now
    )


def _crash(*_: object) -> None:
    raise KeyboardInterrupt
