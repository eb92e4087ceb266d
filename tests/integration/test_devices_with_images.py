"""A federation without words: devices train on their own images, over the wire."""

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from edge_client.child.own_examples import OwnImages, read_images
from edge_client.descent.compute import prepare_compute
from edge_client.training.local_round import LocalTrainer
from models.plan.release_record import VOCABULARY_FILE
from server.config.plans import make_plan
from server.releases.files import ReleaseFolder
from tests.integration.federation import Federation, free_ports
from tests.integration.personal_federation import FEDTP, Simulated
from tests.integration.real_device import RealDevice, await_rounds

pytestmark = pytest.mark.xdist_group("processes")

SETTINGS = """
seed = 1
task = "image_classification"

[model]
family = "vit"
class_count = 3
image_size = 4
channel_count = 1
pixel_mean = [0.5]
pixel_std = [0.25]
patch_size = 2
model_size = 8
head_count = 2
head_size = 4
layer_count = 1
feedforward_size = 8
dropout = 0.1

[training]
learning_rate = 0.1
batch_size = 4

[privacy]
mode = "none"

[aggregation]
rule = "mean"

[rounds]
cap = 2
cohort_size = 2
quorum = 2
deadline_s = 600.0

[listen]
enrolment = "127.0.0.1:{enrolment}"
devices = "127.0.0.1:{devices}"
"""


def write_images(path: Path, seed: int) -> Path:
    drawn = np.random.default_rng(seed)
    pixels = drawn.integers(0, 256, (12, 4, 4, 1), dtype=np.uint8)
    np.savez(path, pixels=pixels, labels=drawn.integers(0, 3, 12))
    return path


def test_devices_with_images_end_where_a_simulation_does_and_nothing_has_a_word_list(
    tmp_path: Path,
) -> None:
    enrolment, ports = free_ports(2)
    text = SETTINGS.format(enrolment=enrolment, devices=ports) + FEDTP.format(head="shared")
    federation = Federation(tmp_path / "federation", text)
    devices: list[RealDevice] = []
    try:
        federation.start()
        for number, invite in enumerate(federation.invite(2)):
            device = RealDevice(tmp_path / invite.stem, "")
            device.data = write_images(tmp_path / f"{invite.stem}.npz", number)
            device.enrol(invite)
            device.start()
            devices.append(device)
        await_rounds(federation, 2)
        digests = [release.parameters_sha256 for release in federation.releases()]
    finally:
        for device in devices:
            device.stop()
        federation.stop()

    config = federation.config
    prepare_compute("cpu", threads=1, model=config.model)
    trainer = LocalTrainer(make_plan(config, run="0" * 32))
    names = [f"device-{number:04d}" for number in (1, 2)]
    own = {
        name: OwnImages(read_images(device.data)).training()
        for name, device in zip(names, devices, strict=True)
    }

    def train(number: int, name: str, received: Tensor) -> tuple[Tensor, int]:
        result = trainer.train(received, own[name], round_number=number, client_name=name)
        return result.update, result.example_count

    assert digests == Simulated(config, names, train).run(2)
    releases = ReleaseFolder(federation.folder.releases)
    assert releases.read(2).vocabulary is None
    assert not (releases.path(2) / VOCABULARY_FILE).exists()
