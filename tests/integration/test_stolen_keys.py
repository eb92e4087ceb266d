"""Stolen keys are shut out: of the coordinator, of its issuing key, of the authority itself."""

import shutil
from pathlib import Path

import pytest

from edge_client.folder.layout import DeviceFolder
from privacy.identities.authority import read_authority_certificate
from privacy.identities.certificates import fingerprint, read_certificate
from privacy.identities.party import Identity
from server.cli import main
from server.operating.commands import Federation as Operated
from tests.integration.conftest import Make, MakeDevices
from tests.integration.federation import Federation
from tests.integration.real_device import RealDevice, await_rounds
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("stolen keys")

REFUSED = "shows certificates that are refused"


def operate(*arguments: object) -> None:
    """Run ``sotto-server`` to its end."""
    assert main([str(argument) for argument in arguments]) == 0


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


def one_more_round(federation: Federation, device: RealDevice) -> int:
    """Let both run for at least a round, and stop them; return how many rounds there are then."""
    federation.start()
    # Started anew: it has forgotten how long it has been waiting, and nothing that it has met.
    device.start()
    await_rounds(federation, len(federation.releases()) + 1)
    device.stop()
    # What it still committed is released now, and not after the next start.
    until(lambda: Operated(federation.root).status().committed_clients == 0)
    federation.stop()
    return len(federation.releases())


def refused(federation: Federation, device: RealDevice, why: str) -> None:
    """Let both run until the device says that it refuses what the coordinator shows, and why."""
    federation.start()
    before = device.log.read_text().count(REFUSED)
    device.start()
    until(lambda: device.log.read_text().count(REFUSED) > before)
    device.stop()
    federation.stop()
    assert why in device.log.read_text()


def test_a_device_that_has_met_new_keys_refuses_the_former_ones_until_they_are_rotated_again(
    make_federation: Make, make_devices: MakeDevices, tmp_path: Path
) -> None:
    federation = make_federation(cohort=1, quorum=1)
    federation.start()
    (device,) = make_devices(federation, 1)
    take_part_alone(device)
    federation.stop()
    stolen = copy_keys(federation, tmp_path / "stolen")
    operate("rotate-keys", federation.root)
    rounds = one_more_round(federation, device)

    # The thief answers at the coordinator's address; or the operator put a backup in its place.
    put_keys(federation, stolen)
    refused(federation, device, "this device has met a newer one")

    assert "runs `sotto-server rotate-keys`" in device.log.read_text()
    assert len(federation.releases()) == rounds
    operate("rotate-keys", federation.root)
    assert one_more_round(federation, device) > rounds


def test_an_offline_authority_shuts_out_a_stolen_issuing_key_and_hands_over_to_the_next_authority(
    make_federation: Make,
    make_devices: MakeDevices,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    federation = make_federation(cohort=1, quorum=1)
    away = tmp_path / "stick" / "authority.key"
    away.parent.mkdir()
    # From here on the authority's key lies elsewhere: devices enrol and rounds close without it.
    (federation.folder.authority / "authority.key").rename(away)
    federation.start()
    (device,) = make_devices(federation, 1)
    take_part_alone(device)
    federation.stop()
    stolen = copy_keys(federation, tmp_path / "stolen")
    operate("rotate-issuing-key", federation.root, "--authority-key", away)
    rounds = one_more_round(federation, device)
    kept = DeviceFolder(device.folder).coordinator()
    issued = Identity.load(stolen / "identity").tls.certified
    assert read_certificate(kept.tls).issuing_not_before > issued.issuing_not_before

    # The thief certifies the newest keys of all, with the former issuing key.
    honest = copy_keys(federation, tmp_path / "honest")
    put_keys(federation, stolen)
    operate("rotate-keys", federation.root)
    refused(federation, device, "this device has met a newer one")
    assert len(federation.releases()) == rounds
    put_keys(federation, honest)

    # The authority itself may have been read: it names the next one.
    before = read_authority_certificate(federation.folder.authority)
    secret = tmp_path / "passphrase"
    secret.touch(mode=0o600)
    secret.write_text("correct horse\n")
    operate(
        *("replace-authority", federation.root, "--authority-key", away),
        *("--new-passphrase-file", secret),
    )
    after = read_authority_certificate(federation.folder.authority)
    assert fingerprint(after).hex() in capsys.readouterr().out
    assert b"ENCRYPTED" in (federation.folder.authority / "authority.key").read_bytes()

    # A floor that pins the former authority is not led away from it; its owner can let it.
    floor = device.folder / "floor.toml"
    accepted = floor.read_text()
    floor.write_text(f'authorities = ["{fingerprint(before).hex()}"]\n{accepted}')
    refused(federation, device, "which this device's owner has not allowed")
    assert DeviceFolder(device.folder).enrolment().ca_certificate == before
    both = f'"{fingerprint(before).hex()}", "{fingerprint(after).hex()}"'
    floor.write_text(f"authorities = [{both}]\n{accepted}")
    rounds = one_more_round(federation, device)
    assert DeviceFolder(device.folder).enrolment().ca_certificate == after
    assert Identity.load(device.folder / "identity").authority == after

    # The former authority's coordinator is nobody to a device that has followed.
    put_keys(federation, honest)
    refused(federation, device, "not issued by this federation's authority")
    assert len(federation.releases()) == rounds
