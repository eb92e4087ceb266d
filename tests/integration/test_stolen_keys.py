"""Stolen keys are shut out: of the coordinator, of its issuing key, of the authority itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_client.folder.layout import DeviceFolder
from privacy.identities.authority import read_authority_certificate
from privacy.identities.certificates import fingerprint, read_certificate
from privacy.identities.party import Identity
from tests.integration.conftest import Make, MakeDevices
from tests.integration.federation import Federation
from tests.integration.real_device import RealDevice, await_line, await_rounds

pytestmark = pytest.mark.xdist_group("stolen keys")

REFUSED = "shows certificates that are refused"


def operate(*arguments: object) -> str:
    """Run ``sotto-server`` to its end and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "server.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def take_part_alone(device: RealDevice) -> None:
    floor = device.folder / "floor.toml"
    floor.write_text(floor.read_text().replace("least_cohort = 2", "least_cohort = 1"))


def copy_keys(federation: Federation, folder: Path) -> Path:
    """Read the authority's folder and the coordinator's keys, as a thief or a backup does."""
    shutil.copytree(federation.folder.authority, folder / "authority")
    shutil.copytree(federation.folder.identity, folder / "identity")
    return folder


def put_keys(federation: Federation, folder: Path) -> None:
    for name in ("authority", "identity"):
        shutil.rmtree(federation.root / name)
        shutil.copytree(folder / name, federation.root / name)


def one_more_round(federation: Federation) -> int:
    """Let the coordinator run for at least a round; return how many there are then."""
    federation.start()
    await_rounds(federation, len(federation.releases()) + 1)
    federation.stop()
    return len(federation.releases())


def test_a_device_that_has_met_new_keys_refuses_the_former_ones_until_they_are_rotated_again(
    make_federation: Make, make_devices: MakeDevices, tmp_path: Path
) -> None:
    federation = make_federation(cohort=1, quorum=1)
    federation.start()
    (device,) = make_devices(federation, 1)
    take_part_alone(device)
    device.start()
    await_rounds(federation, 1)
    federation.stop()
    stolen = copy_keys(federation, tmp_path / "stolen")
    operate("rotate-keys", federation.root)
    rounds = one_more_round(federation)

    # The thief answers at the coordinator's address; or the operator put a backup in its place.
    put_keys(federation, stolen)
    federation.start()
    await_line(device, REFUSED)
    log = device.log.read_text()

    assert "this device has met a newer one" in log
    assert "runs `sotto-server rotate-keys`" in log
    assert len(federation.releases()) == rounds

    federation.stop()
    operate("rotate-keys", federation.root)
    one_more_round(federation)


def test_an_offline_authority_shuts_out_a_stolen_issuing_key_and_hands_over_to_the_next_authority(
    make_federation: Make, make_devices: MakeDevices, tmp_path: Path
) -> None:
    federation = make_federation(cohort=1, quorum=1)
    away = tmp_path / "stick" / "authority.key"
    away.parent.mkdir()
    # From here on the authority's key lies elsewhere: devices enrol and rounds close without it.
    (federation.folder.authority / "authority.key").rename(away)
    federation.start()
    (device,) = make_devices(federation, 1)
    take_part_alone(device)
    device.start()
    await_rounds(federation, 1)
    federation.stop()
    stolen = copy_keys(federation, tmp_path / "stolen")
    operate("rotate-issuing-key", federation.root, "--authority-key", away)
    rounds = one_more_round(federation)
    kept = DeviceFolder(device.folder).coordinator()
    issued = Identity.load(stolen / "identity").tls.certified
    assert read_certificate(kept.tls).issuing_not_before > issued.issuing_not_before

    # The thief certifies the newest keys of all, with the former issuing key.
    honest = copy_keys(federation, tmp_path / "honest")
    put_keys(federation, stolen)
    operate("rotate-keys", federation.root)
    federation.start()
    await_line(device, REFUSED)
    federation.stop()
    assert len(federation.releases()) == rounds
    put_keys(federation, honest)

    # The authority itself may have been read: it names the next one.
    device.stop()
    before = read_authority_certificate(federation.folder.authority)
    secret = tmp_path / "passphrase"
    secret.touch(mode=0o600)
    secret.write_text("correct horse\n")
    told = operate(
        *("replace-authority", federation.root, "--authority-key", away),
        *("--new-passphrase-file", secret),
    )
    after = read_authority_certificate(federation.folder.authority)
    assert fingerprint(after).hex() in told
    assert b"ENCRYPTED" in (federation.folder.authority / "authority.key").read_bytes()

    # A floor that pins the former authority is not led away from it; its owner can let it.
    floor = device.folder / "floor.toml"
    accepted = floor.read_text()
    floor.write_text(f'authorities = ["{fingerprint(before).hex()}"]\n{accepted}')
    federation.start()
    device.start()
    await_line(device, "which this device's owner has not allowed")
    device.stop()
    assert DeviceFolder(device.folder).enrolment().ca_certificate == before
    both = f'"{fingerprint(before).hex()}", "{fingerprint(after).hex()}"'
    floor.write_text(f"authorities = [{both}]\n{accepted}")
    device.start()
    await_rounds(federation, len(federation.releases()) + 1)
    device.stop()
    federation.stop()
    assert DeviceFolder(device.folder).enrolment().ca_certificate == after
    assert Identity.load(device.folder / "identity").authority == after

    # The former authority's coordinator is nobody to a device that has followed.
    put_keys(federation, honest)
    federation.start()
    seen = device.log.read_text().count(REFUSED)
    device.start()
    await_line(device, "not issued by this federation's authority")
    assert device.log.read_text().count(REFUSED) > seen
