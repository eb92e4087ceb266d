"""Key files: who may read them, and what a wrong one is called."""

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from privacy.identities.keys import (
    KeyFileError,
    check_owner_only,
    make_private_folder,
    make_rsa_key,
    make_tls_key,
    private_key_pem,
    public_key_sha256,
    read_passphrase,
    read_private_key,
    write_private_key,
)
from privacy.identities.party import rsa_key
from tests.privacy.conftest import Federation


@pytest.fixture
def key(federation: Federation) -> rsa.RSAPrivateKey:
    return rsa_key(federation.device.signing)


@pytest.mark.parametrize("passphrase", [None, b"seven words"])
def test_a_key_comes_back_from_an_owner_only_file(
    tmp_path: Path, key: rsa.RSAPrivateKey, passphrase: bytes | None
) -> None:
    path = tmp_path / "signing.key"

    write_private_key(path, key, passphrase)
    read = read_private_key(path, passphrase)

    assert public_key_sha256(read.public_key()) == public_key_sha256(key.public_key())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (b"ENCRYPTED" in path.read_bytes()) is (passphrase is not None)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_key_file_that_others_can_reach_is_refused(
    tmp_path: Path, key: rsa.RSAPrivateKey, mode: int
) -> None:
    path = tmp_path / "signing.key"
    write_private_key(path, key)
    path.chmod(mode)

    with pytest.raises(
        KeyFileError, match=f"owner only, but its mode is {mode:04o}; run: chmod 600"
    ):
        read_private_key(path)


def test_the_wrong_passphrase_and_none_are_told_apart(
    tmp_path: Path, key: rsa.RSAPrivateKey
) -> None:
    plain, encrypted = tmp_path / "plain.key", tmp_path / "encrypted.key"
    write_private_key(plain, key)
    write_private_key(encrypted, key, b"right")

    with pytest.raises(KeyFileError, match="is encrypted: give passphrase"):
        read_private_key(encrypted)
    with pytest.raises(KeyFileError, match="passphrase is wrong"):
        read_private_key(encrypted, b"wrong")
    with pytest.raises(KeyFileError, match="is not encrypted: give no passphrase"):
        read_private_key(plain, b"right")


def test_a_missing_and_a_half_written_file_are_named(
    tmp_path: Path, key: rsa.RSAPrivateKey
) -> None:
    path = tmp_path / "tls.key"

    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        read_private_key(path)
    write_private_key(path, key)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(KeyFileError, match="is damaged"):
        read_private_key(path)


def test_a_key_that_sotto_does_not_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ed25519.key"
    other = ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)

    with pytest.raises(KeyFileError, match="must hold an RSA or P-256 key"):
        read_private_key(path)


@pytest.mark.parametrize("part", ["d", "dmp1", "dmq1", "iqmp"])
def test_an_rsa_key_with_a_damaged_part_is_refused(
    tmp_path: Path, key: rsa.RSAPrivateKey, part: str
) -> None:
    # Written as PKCS#8 by hand of the library, which is told not to look either.
    numbers = key.private_numbers()
    parts = {name: getattr(numbers, name) for name in ("p", "q", "d", "dmp1", "dmq1", "iqmp")}
    parts[part] += 2
    damaged = rsa.RSAPrivateNumbers(**parts, public_numbers=numbers.public_numbers).private_key(
        unsafe_skip_rsa_key_validation=True
    )
    path = tmp_path / "signing.key"
    path.write_bytes(private_key_pem(damaged))
    path.chmod(0o600)

    with pytest.raises(KeyFileError, match="is damaged"):
        read_private_key(path)


@pytest.mark.parametrize("bits", [0, 1024, 2048, 3071, 3073, 8192])
def test_small_and_odd_sizes_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=f"bits must be 3072 or 4096, got {bits}"):
        make_rsa_key(bits)


def test_an_empty_passphrase_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"[Pp]assword"):
        write_private_key(tmp_path / "tls.key", make_tls_key(), b"")


def test_a_private_folder_is_made_or_checked(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"

    make_private_folder(folder)
    make_private_folder(folder)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    with pytest.raises(KeyFileError, match="mode is 0755; run: chmod 700"):
        make_private_folder(folder)


def test_a_folder_under_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(KeyFileError, match="cannot be made"):
        make_private_folder(tmp_path / "file" / "folder")


def test_a_check_of_nothing_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_owner_only(tmp_path / "absent")


@pytest.mark.parametrize("content", [b"pass phrase\n", b"pass phrase\r\n", b"pass phrase\nmore"])
def test_a_passphrase_is_the_first_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "passphrase"
    path.write_bytes(content)
    path.chmod(0o600)

    assert read_passphrase(path) == b"pass phrase"


def test_a_passphrase_file_is_owner_only_and_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "passphrase"
    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        read_passphrase(path)
    path.write_bytes(b"\n")
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="owner only"):
        read_passphrase(path)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="first line"):
        read_passphrase(path)
