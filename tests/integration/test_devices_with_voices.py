"""A federation of voices: devices train on their own recordings, and keep who they are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edge_client.agent.exit_status import NO_ROUND
from edge_client.child.own_examples import OwnRecordings
from edge_client.descent.compute import prepare_compute
from edge_client.folder.layout import DeviceFolder
from edge_client.personalisation.state import PersonalState, read_state
from edge_client.training.local_round import LocalTrainer
from edge_client.training.new_client import Fitted, NewClientFit
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.voice import TransformerTtsSettings
from server.config.plans import make_plan
from server.releases.files import read_release
from tests.edge_client.datasets.test_speech_examples import record
from tests.integration.federation import Federation, free_ports
from tests.integration.personal_federation import Simulated
from tests.integration.real_device import LIMIT_S, RealDevice, await_rounds
from tests.waiting import until

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

[fitting]
fit = { epochs = 3 }

[listen]
enrolment = "127.0.0.1:ENROLMENT"
devices = "127.0.0.1:DEVICES"
"""


def recordings(folder: Path, pitch_hz: float) -> Path:
    folder.mkdir()
    for number in range(5):
        record(folder, f"{number}", f"say {chr(ord('a') + number)}", pitch_hz=pitch_hz)
    return folder


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """A federation of two rounds, whose late devices may fit what is their own."""
    enrolment, ports = free_ports(2)
    text = SETTINGS.replace("ENROLMENT", str(enrolment)).replace("DEVICES", str(ports))
    made = Federation(tmp_path / "federation", text)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def enrolled(federation: Federation, tmp_path: Path) -> Iterator[Callable[[float], RealDevice]]:
    """Return what enrols a device that holds recordings of a voice of some pitch, in hertz."""
    made: list[RealDevice] = []

    def enrol(pitch_hz: float) -> RealDevice:
        (invite,) = federation.invite(1)
        device = RealDevice(tmp_path / invite.stem, "")
        device.data = recordings(tmp_path / f"{invite.stem}-voice", pitch_hz)
        device.enrol(invite)
        made.append(device)
        return device

    yield enrol
    for device in made:
        device.stop()


@pytest.fixture
def trained(federation: Federation, enrolled: Callable[[float], RealDevice]) -> list[RealDevice]:
    """Return two devices of different voices that have trained to the end of the run."""
    devices = [enrolled(300.0), enrolled(500.0)]
    for device in devices:
        device.start()
    await_rounds(federation, 2)
    return devices


def test_devices_with_voices_end_where_a_simulation_does_and_keep_who_speaks(
    federation: Federation, trained: list[RealDevice]
) -> None:
    digests = [release.parameters_sha256 for release in federation.releases()]

    config = federation.config
    assert isinstance(config.model, TransformerTtsSettings)
    prepare_compute("cpu", threads=1, model=config.model)
    trainer = LocalTrainer(make_plan(config, run="0" * 32))
    names = [f"device-{number:04d}" for number in (1, 2)]
    own = {
        name: OwnRecordings.read(device.data, config.model).training()
        for name, device in zip(names, trained, strict=True)
    }
    kept: dict[str, PersonalState | None] = dict.fromkeys(names)

    def train(number: int, name: str, received: Tensor) -> tuple[Tensor, int]:
        result = trainer.train(
            received, own[name], round_number=number, client_name=name, personal=kept[name]
        )
        kept[name] = result.personal
        return result.update, result.example_count

    assert digests == Simulated(config, names, train).run(2)
    for name, device in zip(names, trained, strict=True):
        current, simulated = DeviceFolder(device.folder).personal.current, kept[name]
        assert simulated is not None
        assert simulated.personal.shape == (3,)

        def is_kept(current: Path = current, simulated: PersonalState = simulated) -> bool:
            state = read_state(current, trainer.layout)
            return state is not None and torch.equal(state.personal, simulated.personal)

        until(is_kept)
    first, second = (kept[name] for name in names)
    assert first is not None
    assert second is not None
    assert first.personal.tolist() != second.personal.tolist()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("trained")
def test_who_comes_late_fits_their_own_voice_and_sends_nothing_of_it(
    federation: Federation, enrolled: Callable[[float], RealDevice]
) -> None:
    released = read_release(federation.folder.releases / "latest")
    late = enrolled(400.0)

    late.start("--once")
    assert late.process is not None
    assert late.process.wait(timeout=LIMIT_S) == 0, late.log.read_text()

    config = federation.config
    prepare_compute("cpu", threads=1, model=config.model)
    plan = make_plan(config, "0" * 32, "fit_personal")
    fitted: list[Fitted] = []
    assert isinstance(config.model, TransformerTtsSettings)
    NewClientFit(plan).fit(
        torch.tensor(released.parameters),
        OwnRecordings.read(late.data, config.model).training(),
        client_name="device-0003",
        settings=EmbeddingFitSettings(epochs=3),
        after_epoch=lambda _, model: fitted.append(model),
    )
    kept = read_state(DeviceFolder(late.folder).personal.current, LocalTrainer(plan).layout)
    assert kept is not None
    assert kept.personal.tolist() == fitted[-1].personal.personal.tolist()
    assert kept.personal.tolist() != fitted[0].personal.personal.tolist()
    assert "nothing of it is sent" in late.log.read_text()
    after = read_release(federation.folder.releases / "latest")
    assert after.record == released.record

    # After a restart on either side: who has a voice is asked for no other.
    federation.kill()
    federation.start()
    before = DeviceFolder(late.folder).personal.current.read_bytes()
    late.start("--once")
    assert late.process.wait(timeout=LIMIT_S) == NO_ROUND
    assert DeviceFolder(late.folder).personal.current.read_bytes() == before
