"""A coordinator, its helper and devices: sums come out, and nobody opens an update."""

import asyncio
import math
import time
from pathlib import Path

import msgspec
import pytest
import torch

from edge_client.folder.layout import DeviceFolder
from edge_client.owner.doctor import examine
from models.networks.flat_parameters import initial_parameters
from models.vector.codec import FlatVector
from privacy.identities.certificates import fingerprint
from privacy.identities.helper_admission import read_helper_certificates
from privacy.noise.settings import NoNoise
from server.config.federation import FederationConfig
from server.releases.files import read_release
from tests.integration.conftest import MakeMasked
from tests.integration.masked_federation import MaskedFederation
from tests.integration.real_device import TEXTS, RealDevice, await_line, await_rounds, set_floor
from tests.integration.simulated_run import simulated_models
from tests.integration.test_round import run_to_the_end


@pytest.mark.parametrize("groups", [1, 2])
def test_masked_rounds_release_what_the_same_vectors_sum_to_without_masks(
    masked_federation: MakeMasked, groups: int
) -> None:
    federation = masked_federation(cap=2, cohort=4, quorum=4, more_privacy=f"groups = {groups}")
    federation.helper.start()
    federation.start()
    devices = federation.enrol(4)

    run_to_the_end(federation)

    federation.stop()
    releases = federation.releases()
    assert [release.round_number for release in releases] == [1, 2]
    names = [device.name for device in devices]
    assert releases[-1].parameters_sha256.hex() == federation.expected_digest(names, 2)
    # Both sides hold the same statements, signed by the helper: one for each group of a round.
    statements = [signed.statement for signed in federation.helper.answers()]
    assert [signed.statement for signed in federation.kept_answers()] == statements
    assert [signed.answer.question for signed in federation.helper.answers()] == [
        (number, 0, group) for number in (1, 2) for group in range(groups)
    ]


def test_eight_real_devices_end_in_the_model_of_rounds_without_masks(
    masked_federation: MakeMasked, tmp_path: Path
) -> None:
    federation = masked_federation(cap=2, cohort=8, quorum=8)
    federation.helper.start()
    federation.start()
    devices = real_devices(federation, tmp_path, 8)
    try:
        for device in devices:
            device.start()
        await_rounds(federation, 2)
    finally:
        for device in devices:
            device.stop()

    federation.stop()
    texts = [device.data for device in devices]
    first, second = simulated_models(without_masks(federation), texts, rounds=2)
    started = initial_parameters(federation.config.model, federation.config.seed)
    released = [torch.tensor(released_model(federation, number)) for number in (1, 2)]
    # The noise of a mean of eight: z S / 8 with S = C sqrt(1 + 0.1), and 7 of it on 1,800 elements
    # has a chance of 1e-8.
    noise = 1e-3 * math.sqrt(1.1) / 8
    assert float((released[0] - first).abs().max()) < 7 * noise
    # The noise of the first round changes the training of the second as little.
    assert float((released[1] - second).norm()) < 0.01 * float((second - started).norm())
    for device in devices:
        assert "round 2: update delivered" in device.log.read_text()
    # The owner of each was told what that means, and can look it up.
    found = asyncio.run(examine(DeviceFolder(devices[0].folder), now=time.time()))
    told = {finding.subject: finding for finding in found}["helper"]
    certificate = read_helper_certificates(federation.folder.helper).wrapping
    assert told.good
    assert f"the helper {fingerprint(certificate).hex()} holds this device's masks" in told.text
    assert told.text in devices[0].log.read_text()


def test_a_device_killed_while_it_trains_and_while_it_sends_counts_once_with_the_same_bytes(
    masked_federation: MakeMasked, tmp_path: Path
) -> None:
    federation = masked_federation(cap=1, cohort=2, quorum=1)
    federation.helper.start()
    # Dies when the update lies on its disk, and before the device is told.
    federation.start("blob_renamed")
    devices = real_devices(federation, tmp_path, 2)
    for device in devices:
        set_floor(device, least_cohort=1)
    try:
        devices[0].start()
        await_line(devices[0], "train started")
        devices[0].kill()
        devices[0].start()
        federation.wait_killed()
        devices[0].kill()
        sealed = (devices[0].folder / "outbox" / "update.sealed").read_bytes()

        federation.start()
        devices[0].start()
        await_line(devices[0], "update delivered")
        blobs = [path for path in federation.folder.updates.rglob("*") if path.is_file()]
        assert sealed in [blob.read_bytes() for blob in blobs]
        devices[1].start()
        await_rounds(federation, 1)
    finally:
        for device in devices:
            device.stop()

    federation.stop()
    (release,) = federation.releases()
    assert (release.contribution_count, release.attempt) == (2, 0)
    (first,) = simulated_models(
        without_masks(federation), [device.data for device in devices], rounds=1
    )
    difference = torch.tensor(released_model(federation, 1)) - first
    # A share of the noise is that of one device, z S, and the mean is over two.
    assert float(difference.abs().max()) < 7 * 1e-3 * math.sqrt(1.1) * math.sqrt(2) / 2


def without_masks(federation: MaskedFederation) -> FederationConfig:
    """Return the settings of the same federation in which the coordinator opens updates."""
    return msgspec.structs.replace(
        federation.config, privacy=NoNoise(clipping_norm=1.0), helper=None
    )


def real_devices(federation: MaskedFederation, folder: Path, count: int) -> list[RealDevice]:
    """Enrol real devices, each with a text of its own."""
    devices = []
    for number, invite in enumerate(federation.invite(count)):
        device = RealDevice(folder / invite.stem, TEXTS[number % 3] + "the train " * number + "\n")
        device.enrol(invite)
        devices.append(device)
    return devices


def released_model(federation: MaskedFederation, number: int) -> FlatVector:
    return read_release(federation.folder.releases / f"{number:06d}").parameters
