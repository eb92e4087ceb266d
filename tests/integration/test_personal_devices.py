"""Everyone's own model over the wire: real agents, and a coordinator that dies in mid-round."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from edge_client.child.own_text import OwnText, training_examples
from edge_client.descent.compute import prepare_compute
from edge_client.owner.typed_text import TextSettings
from edge_client.personalisation.state import PersonalState, read_state
from edge_client.training.local_round import LocalTrainer
from models.plan.plan import VocabularySettings
from models.plan.release_record import PERSONALISATION_FILE
from models.settings.model import TransformerLmSettings, schema_of
from models.text.vocabulary import shipped_vocabulary
from protos import federation_pb2 as pb
from server.config.federation import FederationConfig
from server.config.plans import make_plan
from tests.integration.conftest import Make, MakeDevices
from tests.integration.personal_federation import FEDTP, TRANSFORMER, Simulated
from tests.integration.real_device import RealDevice, await_line, await_rounds, set_floor
from tests.integration.test_real_refusals import connected, operator
from tests.packed_start import write_packed_start
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("processes")


def public_start(path: Path) -> Path:
    """Write a start of the small Transformer, for the words of the small federation."""
    words = shipped_vocabulary(200)
    model = TransformerLmSettings(
        vocabulary_size=len(words),
        model_size=8,
        head_count=2,
        layer_count=1,
        feedforward_size=8,
        context_size=8,
        tied=False,
    )
    listed = VocabularySettings(name="english-10k", size=200, sha256=words.sha256.hex())
    drawn = np.random.default_rng(7).normal(0, 0.3, schema_of(model).element_count)
    return write_packed_start(path, model, listed, drawn.astype(np.float32))


class SimulatedDevices:
    """Train real devices' texts as the simulation does."""

    def __init__(self, config: FederationConfig, devices: list[RealDevice]) -> None:
        prepare_compute("cpu", threads=1, model=config.model)
        words = config.word_list.load()
        self.names = [f"device-{number:04d}" for number in range(1, len(devices) + 1)]
        texts = zip(self.names, [device.data for device in devices], strict=True)
        self._examples = {name: training_examples(text, words) for name, text in texts}
        self.trainer = LocalTrainer(make_plan(config, run="0" * 32, vocabulary=words))
        self.personal: dict[str, PersonalState | None] = dict.fromkeys(self.names)

    def train(self, number: int, name: str, received: Tensor) -> tuple[Tensor, int]:
        result = self.trainer.train(
            received,
            self._examples[name],
            round_number=number,
            client_name=name,
            personal=self.personal[name],
        )
        self.personal[name] = result.personal
        return result.update, result.example_count

    def are_kept(self, devices: list[RealDevice]) -> bool:
        """Return whether each device's personal model is the simulated one, to the bit."""
        for name, device in zip(self.names, devices, strict=True):
            path = device.folder / "personal" / "current.state"
            kept, expected = read_state(path, self.trainer.layout), self.personal[name]
            assert expected is not None
            if kept is None or not torch.equal(kept.personal, expected.personal):
                return False
        return True


@pytest.mark.parametrize("is_started", [False, True])
def test_a_federation_of_personal_models_ends_where_a_simulation_does_though_both_ends_die(
    make_federation: Make, make_devices: MakeDevices, tmp_path: Path, *, is_started: bool
) -> None:
    start = public_start(tmp_path / "public.sotto") if is_started else None
    # Projections are generated for each device, the head never leaves it.
    federation = make_federation(
        model=TRANSFORMER,
        cap=3,
        cohort=2,
        quorum=1,
        first="" if start is None else f'start_from = "{start}"',
        tables=FEDTP.format(head="personal"),
    )
    federation.start()
    devices = make_devices(federation, 2)
    for device in devices:
        set_floor(device, least_cohort=1)
    devices[0].start()
    await_line(devices[0], "round 1: update delivered")

    federation.kill()
    devices[0].kill()
    federation.start()
    for device in devices:
        device.start()
    await_rounds(federation, 3)

    clients = SimulatedDevices(federation.config, devices)
    simulated = Simulated(federation.config, clients.names, clients.train)
    assert [release.parameters_sha256 for release in federation.releases()] == simulated.run(3)
    latest = federation.folder.releases / "latest" / PERSONALISATION_FILE
    until(lambda: latest.read_bytes() == simulated.state_file)
    until(lambda: clients.are_kept(devices))
    # The update that lay committed was not asked for again.
    assert devices[0].log.read_text().count("round 1: update delivered") == 1


def test_a_device_scores_the_model_that_was_generated_for_it(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    evaluation = '[evaluation]\nkind = "devices"\ncohort_size = 1\ndeadline_s = 600.0\n'
    tables = evaluation + FEDTP.format(head="shared")
    federation = make_federation(model=TRANSFORMER, cap=1, cohort=1, quorum=1, tables=tables)
    federation.start()
    devices = make_devices(federation, 2)
    with operator(federation) as admin:
        admin.Pause(pb.PauseRequest(), timeout=60)
        for device in devices:
            set_floor(device, least_cohort=1)
            device.start()
        until(lambda: connected(federation) == 2)
        admin.Resume(pb.ResumeRequest(), timeout=60)
    (release,) = until(
        lambda: [found for found in federation.releases() if "perplexity" in found.metrics]
    )

    clients = SimulatedDevices(federation.config, devices)
    trainer = int("train started" in devices[1].log.read_text())
    trained, scored = clients.names[trainer], clients.names[1 - trainer]
    simulated = Simulated(federation.config, [trained], clients.train)
    simulated.run(1)
    counts = clients.trainer.evaluate(
        simulated.received_by(scored),
        OwnText.read(devices[1 - trainer].data, TextSettings(), now=0.0).held_out_examples(
            federation.config.word_list.load()
        ),
        client_name=scored,
    )
    assert release.metrics["perplexity"] == pytest.approx(counts.perplexity, rel=1e-6)
