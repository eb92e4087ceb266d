"""A federation of voices: devices train on their own recordings, and keep who they are."""

from pathlib import Path

import pytest
from torch import Tensor

from edge_client.compute import prepare_compute
from edge_client.device_folder import DeviceFolder
from edge_client.local_round import LocalTrainer
from edge_client.own_examples import OwnRecordings
from edge_client.personalisation.state import PersonalState, read_state
from models.transformer_tts_settings import TransformerTtsSettings
from server.config import make_plan
from tests.edge_client.test_speech_examples import record
from tests.integration.federation import Federation, free_ports
from tests.integration.personal_federation import Simulated
from tests.integration.real_device import RealDevice, await_rounds

pytestmark = pytest.mark.xdist_group("processes")

SETTINGS = """
seed = 1
task = "speech"

[model]
family = "transformer_tts"
hidden_size = 8
head_count = 2
layer_count = 1
feedforward_size = 8
reduction_factor = 2
embedding_size = 6
text_channels = 6
mel_prenet_size = 6
postnet_channels = 6
postnet_layer_count = 2
norm = "layer"
speaker_size = 3
mel = { sample_rate_hz = 8000, fft_size = 512, window_size = 512, hop_size = 128, \
mel_count = 8, highest_hz = 4000.0 }

[training]
optimiser = "adam"
learning_rate = 0.02
batch_size = 3

[privacy]
mode = "none"

[aggregation]
rule = "mean"

[rounds]
cap = 2
cohort_size = 2
quorum = 2
deadline_s = 300.0

[listen]
enrolment = "127.0.0.1:ENROLMENT"
devices = "127.0.0.1:DEVICES"
"""


def recordings(folder: Path, pitch_hz: float) -> Path:
    folder.mkdir()
    for number in range(5):
        record(folder, f"{number}", f"say {chr(ord('a') + number)}", pitch_hz=pitch_hz)
    return folder


def test_devices_with_voices_end_where_a_simulation_does_and_keep_who_speaks(
    tmp_path: Path,
) -> None:
    enrolment, ports = free_ports(2)
    text = SETTINGS.replace("ENROLMENT", str(enrolment)).replace("DEVICES", str(ports))
    federation = Federation(tmp_path / "federation", text)
    devices: list[RealDevice] = []
    try:
        federation.start()
        for number, invite in enumerate(federation.invite(2)):
            device = RealDevice(tmp_path / invite.stem, "")
            device.data = recordings(tmp_path / f"{invite.stem}-voice", 300.0 + 200 * number)
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
    assert isinstance(config.model, TransformerTtsSettings)
    prepare_compute("cpu", threads=1, model=config.model)
    trainer = LocalTrainer(make_plan(config, run="0" * 32))
    names = [f"device-{number:04d}" for number in (1, 2)]
    own = {
        name: OwnRecordings.read(device.data, config.model).training()
        for name, device in zip(names, devices, strict=True)
    }
    kept: dict[str, PersonalState | None] = dict.fromkeys(names)

    def train(number: int, name: str, received: Tensor) -> tuple[Tensor, int]:
        result = trainer.train(
            received, own[name], round_number=number, client_name=name, personal=kept[name]
        )
        kept[name] = result.personal
        return result.update, result.example_count

    assert digests == Simulated(config, names, train).run(2)
    for name, device in zip(names, devices, strict=True):
        state = read_state(DeviceFolder(device.folder).personal.current, trainer.layout)
        simulated = kept[name]
        assert state is not None
        assert simulated is not None
        assert state.personal.tolist() == simulated.personal.tolist()
        assert state.personal.shape == (3,)
    first, second = (kept[name] for name in names)
    assert first is not None
    assert second is not None
    assert first.personal.tolist() != second.personal.tolist()
