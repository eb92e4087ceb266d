"""What real agents do when they, their owner or the coordinator cannot go on."""

import contextlib
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import torch

from edge_client.child.own_text import OwnText
from edge_client.owner.typed_text import TextSettings
from edge_client.training.local_round import LocalTrainer
from edge_client.training.users_scoring import evaluate_users
from models.networks.flat_parameters import initial_parameters
from models.settings.model import schema_of
from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution
from server.config.plans import make_plan
from tests.integration.conftest import Make, MakeDevices
from tests.integration.federation import Federation
from tests.integration.real_device import RealDevice, await_line, await_rounds, set_floor
from tests.integration.simulated_run import simulated
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("real refusals")


@contextlib.contextmanager
def operator(federation: Federation) -> Iterator[pb_grpc.AdminStub]:
    with grpc.insecure_channel(f"unix:{federation.root}/admin.sock") as channel:
        yield pb_grpc.AdminStub(channel)


def connected(federation: Federation) -> int:
    with operator(federation) as admin:
        return admin.Status(pb.StatusRequest(), timeout=60).connected_clients


def ended(device: RealDevice) -> tuple[int, str]:
    """Wait until an agent has ended; return its status and what it printed last."""
    assert device.process is not None
    status = device.process.wait(timeout=60)
    return status, device.log.read_text().splitlines()[-1]


def test_an_upload_cut_in_the_middle_goes_on_with_the_same_bytes(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    # 3,000 words in 128 dimensions: an update of more than one chunk of 1 MiB.
    federation = make_federation(words=3000, hidden=128, cap=1, cohort=1, quorum=1)
    federation.start(failpoint="mid_chunk")
    (device,) = make_devices(federation, 1)
    set_floor(device, least_cohort=1)

    device.start()
    federation.wait_killed()
    sealed = (device.folder / "outbox" / "update.sealed").read_bytes()
    (partial,) = federation.folder.uploads.iterdir()
    assert sealed.startswith(partial.read_bytes())
    assert partial.stat().st_size < len(sealed)
    federation.start()
    await_rounds(federation, 1)

    expected = simulated(federation.config, [device.data], rounds=1)
    assert [release.parameters_sha256 for release in federation.releases()] == expected
    await_line(device, "update delivered")
    log = device.log.read_text()
    assert (log.count("train started"), log.count("update delivered")) == (1, 1)


def test_a_revoked_device_stops_and_says_why(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation()
    federation.start()
    (device,) = make_devices(federation, 1)
    device.start()
    until(lambda: connected(federation) == 1)

    with operator(federation) as admin:
        admin.Revoke(pb.RevokeRequest(client_name="device-0001"), timeout=60)

    for _ in range(2):
        status, last_line = ended(device)
        assert status == 1
        assert last_line.startswith("sotto-client: the coordinator refused (certificate_revoked)")
        device.start()
    ended(device)


def test_the_older_of_two_agents_with_one_identity_stops_and_the_newer_goes_on(
    make_federation: Make, make_devices: MakeDevices, tmp_path: Path
) -> None:
    federation = make_federation()
    federation.start()
    (device,) = make_devices(federation, 1)
    copy = RealDevice(tmp_path / "copy", "")
    shutil.copytree(device.folder, copy.folder)
    device.start()
    until(lambda: connected(federation) == 1)

    copy.start()
    try:
        status, last_line = ended(device)

        assert status == 1
        assert last_line.startswith("sotto-client: the coordinator refused (identity_in_use)")
        assert connected(federation) == 1
        assert copy.process is not None
        assert copy.process.poll() is None
    finally:
        copy.stop()


def test_devices_that_refuse_the_plan_are_counted_and_not_waited_for(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=1, cohort=3, quorum=1, deadline=600.0)
    federation.start()
    willing, careful, silent = make_devices(federation, 3)
    set_floor(careful, least_cohort=50)
    for device in (willing, silent):
        set_floor(device, least_cohort=1)  # The round may close with one.
    (silent.data / "messages.txt").write_text("zzyzx qwrtp\n")

    silent.start("--once")
    careful.start()
    willing.start("--once")
    await_rounds(federation, 1)

    (release,) = federation.releases()
    assert release.contribution_count == 1
    assert release.metrics["refused_floor_cohort"] == 1
    assert release.metrics["refused_data_unusable"] == 1
    # A refusal is no failure: an agent that stays waits for a plan that it accepts.
    assert careful.process is not None
    assert careful.process.poll() is None
    # One that shall end after a round says what came of it.
    status, last_line = ended(silent)
    assert (status, "(data_unusable)" in last_line) == (3, True)
    assert ended(willing)[0] == 0
    willing.start("--once")
    assert ended(willing) == (5, "sotto-client: the run is over")


def test_a_device_outside_the_round_scores_its_model_on_held_out_text(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    evaluation = '[evaluation]\nkind = "devices"\ncohort_size = 1\ndeadline_s = 600.0\n'
    federation = make_federation(cap=1, cohort=1, quorum=1, tables=evaluation)
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

    trainer = int("train started" in devices[1].log.read_text())
    trained, scored = devices[trainer], devices[1 - trainer]
    assert "evaluate started" in scored.log.read_text()
    assert release.metrics["perplexity"] == pytest.approx(
        expected_perplexity(federation, f"device-{trainer + 1:04d}", trained.data, scored.data),
        rel=1e-6,
    )


def expected_perplexity(
    federation: Federation, client: str, trained_on: Path, scored_on: Path
) -> float:
    """Return the perplexity of the model after round 1, from the functions of either side."""
    config, words = federation.config, federation.config.word_list.load()
    plan = make_plan(config, run="0" * 32, vocabulary=words)
    parameters = initial_parameters(config.model, config.seed)
    texts = [OwnText.read(path, TextSettings(), now=0.0) for path in (trained_on, scored_on)]
    result = LocalTrainer(plan).train(
        parameters, texts[0].training_examples(words), round_number=1, client_name=client
    )
    closed = close_round(
        parameters,
        [Contribution(0, result.update, result.example_count)],
        Closing(
            schema=schema_of(config.model),
            aggregation=config.aggregation,
            privacy=config.privacy,
            slot_count=1,
            generator=torch.Generator(),
        ),
    )
    held_out = texts[1].held_out_examples(words)
    counts = evaluate_users(plan, closed.parameters, [held_out], device=torch.device("cpu"))
    return math.exp(counts.log_loss_sum / counts.token_count)
