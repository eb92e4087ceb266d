"""A device whose key files are encrypted: enrolment, rounds and renewal with a passphrase."""

import asyncio
import json
import tempfile
import time
from pathlib import Path

import pytest

from edge_client.cli import main
from edge_client.folder.layout import DeviceFolder
from edge_client.wire.enrolling import renew_certificates
from edge_client.wire.transport import Transport
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity
from tests.forking import ForkedCommand
from tests.integration.conftest import Make
from tests.integration.real_device import (
    TEXTS,
    RealDevice,
    await_line,
    await_rounds,
    children_of,
    set_floor,
)
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("passphrase"), pytest.mark.usefixtures("no_forks_left")]

SECRET = "seven quite ordinary words"


def enrolled(folder: Path, invite: Path, secret: Path) -> RealDevice:
    device = RealDevice(folder, TEXTS[0])
    device.enrol(invite, "--passphrase-file", str(secret))
    set_floor(device, least_cohort=1)
    return device


def visible_to_others(pid: int) -> bytes:
    """Return the command line and the environment of a process."""
    process = Path("/proc") / str(pid)
    return (process / "cmdline").read_bytes() + (process / "environ").read_bytes()


def test_a_device_with_a_passphrase_trains_and_never_shows_it(
    make_federation: Make, tmp_path: Path
) -> None:
    federation = make_federation(cap=1, cohort=1, quorum=1)
    federation.start()
    (invite,) = federation.invite()
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    device = enrolled(tmp_path / "device", invite, secret)
    keys = list((device.folder / "identity").rglob("*.key"))
    assert len(keys) == 3
    assert all(b"ENCRYPTED" in key.read_bytes() for key in keys)

    try:
        device.start("--passphrase-file", str(secret), is_forked=False)
        await_line(device, "train started")
        assert device.process is not None
        agent = device.process.pid
        (child,) = until(lambda: children_of(agent))
        shown = visible_to_others(agent) + visible_to_others(child)
        # The file may go once the agent has started.
        secret.unlink()
        await_rounds(federation, 1)
    finally:
        device.stop()

    assert SECRET.encode() not in shown + device.log.read_bytes()
    (release,) = federation.releases()
    assert release.contribution_count == 1


def test_renewed_keys_are_encrypted_too(make_federation: Make, tmp_path: Path) -> None:
    federation = make_federation()
    federation.start()
    (invite,) = federation.invite()
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    folder = DeviceFolder(enrolled(tmp_path / "device", invite, secret).folder)
    enrolment, words = folder.enrolment(), SECRET.encode()
    before = Identity.load(folder.identity, words)

    async def renew() -> None:
        async with Transport(
            enrolment.device_address,
            enrolment.ca_certificate,
            before.tls_key_pem,
            before.tls_certificate_pem,
        ) as transport:
            await renew_certificates(
                folder,
                enrolment.ca_certificate,
                transport,
                now=time.time(),
                passphrase=words,
            )

    asyncio.run(renew())

    after = Identity.load(folder.identity, words)
    assert after.certificates != before.certificates
    with pytest.raises(KeyFileError, match="is encrypted"):
        Identity.load(folder.identity)


def command(*arguments: str) -> tuple[int, str]:
    """Run ``sotto-client`` to its end, forked; return its status and all that it said."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        status = ForkedCommand(main, [*arguments], log).wait(60)
        return status, log.read_text()


def told(*arguments: str) -> str:
    """Return the one line of a command that fails."""
    status, said = command(*arguments)
    assert status == 1
    (line,) = said.splitlines()
    return line


def test_a_wrong_or_missing_passphrase_is_told_before_anything_else(
    make_federation: Make, tmp_path: Path
) -> None:
    federation = make_federation()
    federation.start()
    (invite,) = federation.invite()
    secret, wrong = tmp_path / "secret", tmp_path / "wrong"
    for path, content in ((secret, SECRET), (wrong, "others")):
        path.write_text(content)
        path.chmod(0o600)
    device = enrolled(tmp_path / "device", invite, secret)
    # Its policy forbids work for now; the owner is told all the same.
    hour = (time.localtime().tm_hour + 12) % 24
    window = f'[policy]\nwindow = "{hour:02d}:00-{hour:02d}:59"\n'
    (device.folder / "client.toml").write_text(window)
    run = ["run", str(device.folder), "--data", str(device.data)]

    assert "is encrypted: give passphrase with --passphrase-file" in told(*run)
    given = [*run, "--passphrase-file"]
    assert "or the passphrase is wrong" in told(*given, str(wrong))
    secret.chmod(0o644)
    assert "must be readable by its owner only" in told(*given, str(secret))
    assert "cannot be read" in told(*given, str(tmp_path / "none"))
    secret.chmod(0o600)
    examined = ["doctor", str(device.folder), "--json", "--passphrase-file"]
    for path, good in ((wrong, False), (secret, True)):
        _, said = command(*examined, str(path))
        assert json.loads(said)["certificates"]["good"] is good
