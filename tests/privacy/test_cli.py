"""The command ``sotto-privacy keygen``."""

import stat
from pathlib import Path

import pytest

from privacy.cli import main
from privacy.identities.authority import CertificateAuthority
from privacy.identities.keys import read_private_key
from privacy.identities.party import Identity
from tests.privacy.conftest import NOW, RUN


def test_keys_made_ahead_are_the_keys_of_the_enrolment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "identity"

    assert main(["keygen", "--out", str(folder)]) == 0
    made = (folder / "pending" / "wrapping.key").read_bytes()
    requests = Identity.create_requests(folder, "device")
    authority = CertificateAuthority.create(tmp_path / "ca", RUN.hex(), now=NOW)
    issued = authority.issue_all(requests, name="device-0001", role="device", now=NOW)
    Identity.install(folder, issued, ca=authority.certificate, role="device", now=NOW)

    assert (folder / "0001" / "wrapping.key").read_bytes() == made
    assert stat.S_IMODE((folder / "0001" / "wrapping.key").stat().st_mode) == 0o600
    assert "RSA-3072" in capsys.readouterr().out


def test_a_passphrase_file_encrypts_the_keys(tmp_path: Path) -> None:
    passphrase = tmp_path / "passphrase"
    passphrase.write_bytes(b"seven words\n")
    passphrase.chmod(0o600)

    status = main(["keygen", "--out", str(tmp_path / "k"), "--passphrase-file", str(passphrase)])

    assert status == 0
    path = tmp_path / "k" / "pending" / "signing.key"
    assert b"ENCRYPTED" in path.read_bytes()
    read_private_key(path, b"seven words")


def test_keys_in_use_are_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "something").touch()

    assert main(["keygen", "--out", str(tmp_path)]) == 1

    captured = capsys.readouterr()
    assert captured.err.startswith("sotto-privacy: ")
    assert captured.err.count("\n") == 1
    assert "must be empty or absent" in captured.err
    assert captured.out == ""


def test_a_missing_passphrase_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["keygen", "--out", str(tmp_path / "k"), "--passphrase-file", str(tmp_path / "p")]

    assert main(arguments) == 1

    assert "cannot be read: No such file" in capsys.readouterr().err
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize(
    "arguments",
    [[], ["keygen"], ["keygen", "--out", "k", "--bits", "2048"], ["keygen", "--ou", "k"]],
)
def test_wrong_usage_exits_with_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as exit_:
        main(arguments)

    assert exit_.value.code == 2


def test_help_states_the_unit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["keygen", "--help"])

    assert exit_.value.code == 0
    assert "in bits" in capsys.readouterr().out
