"""One job, from the sealed model to the sealed answer; what goes wrong has a code."""

import errno
import hashlib
import importlib.util
import os
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from edge_client.child.work import do_job
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Evaluated, Trained
from edge_client.owner.example_ledger import read_spending
from edge_client.training.local_round import LocalTrainer
from edge_client.training.users_scoring import evaluate_users
from models.plan.plan import Plan, TrainingSettings
from models.settings.compression import CompressionSettings
from models.vector.codec import decode, payload_size
from models.vector.seeds import client_seed
from privacy.example_level.accounting import example_epsilon
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.identities.party import Identity
from privacy.noise.settings import PaperNoise
from privacy.sealing.envelope import Direction, open_sealed
from tests.edge_client.job_scene import (
    PARAMETERS,
    SCHEMA,
    SENTENCES,
    Enrolled,
    Scene,
    enrol_device,
    examples,
)
from tests.edge_client.stand_ins import shipped_words


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_device(tmp_path_factory.mktemp("enrolled"))


@pytest.fixture
def scene(tmp_path: Path, enrolled: Enrolled) -> Scene:
    return Scene(tmp_path, enrolled)


@pytest.mark.slow
def test_the_coordinator_opens_the_very_update_that_the_text_trains(scene: Scene) -> None:
    outcome = do_job(scene.job())

    assert isinstance(outcome, Trained)
    device = Identity.load(scene.device / "identity")
    payload = open_sealed(
        [scene.update.read_bytes()],
        scene.context(Direction.UPLINK),
        payload_bytes=payload_size(SCHEMA),
        recipient=scene.coordinator,
        sender=device.signing.certified,
    )
    expected = LocalTrainer(scene.plan).train(
        PARAMETERS, examples(SENTENCES[:8]), round_number=1, client_name="device-0001"
    )
    assert np.array_equal(decode(SCHEMA, payload), expected.update.numpy())
    assert outcome.example_count == expected.example_count
    assert scene.update.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_the_papers_noise_on_an_update_is_not_what_the_plans_seed_draws(scene: Scene) -> None:
    spread = 0.5
    noisy = PaperNoise(randomisation_magnitude=spread, clipping_norm=1.0)
    plan = msgspec.structs.replace(scene.plan, privacy=noisy)

    assert isinstance(do_job(scene.job(plan)), Trained)

    payload = open_sealed(
        [scene.update.read_bytes()],
        scene.context(Direction.UPLINK),
        payload_bytes=payload_size(SCHEMA),
        recipient=scene.coordinator,
        sender=Identity.load(scene.device / "identity").signing.certified,
    )
    seed = client_seed(plan.seed, 1, "device-0001", purpose="randomisation")
    known = torch.empty(SCHEMA.element_count)
    known.normal_(generator=torch.Generator().manual_seed(seed)).mul_(spread)
    # Taking out a draw that has nothing to do with the noise adds as much again; the right one
    # would leave the update, of norm 1 at most.
    left = torch.from_numpy(decode(SCHEMA, payload).copy()) - known
    assert float(left.norm()) > spread * SCHEMA.element_count**0.5


def test_a_device_that_has_typed_much_tells_the_cap(scene: Scene) -> None:
    training = msgspec.structs.replace(scene.plan.training, example_cap=5)

    outcome = do_job(scene.job(msgspec.structs.replace(scene.plan, training=training)))

    assert isinstance(outcome, Trained)
    assert outcome.example_count == 5


def test_an_evaluation_counts_on_the_held_out_text_and_sends_no_update(scene: Scene) -> None:
    plan = msgspec.structs.replace(scene.plan, kind="evaluate")

    outcome = do_job(scene.job(plan))

    expected = evaluate_users(
        plan, PARAMETERS, [examples(SENTENCES[8:])], device=torch.device("cpu")
    )
    # Three words and two, and the ends of both sentences.
    assert expected.token_count == 7
    assert isinstance(outcome, Evaluated)
    assert (outcome.token_count, outcome.top1_hits, outcome.top3_hits) == (
        7,
        expected.top1_hits,
        expected.top3_hits,
    )
    assert (outcome.word_count, outcome.unknown_count) == (5, expected.unknown_count)
    assert_close(outcome.log_loss_sum, expected.log_loss_sum)
    assert not scene.update.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is empty"),
        (b"", "a word of the vocabulary"),
        ("übermäßig 12345 zzzzzz".encode(), "a word of the vocabulary"),
        (b"\x00\x01\xff\xfe" * 50, "messages.txt"),
    ],
    ids=["empty-folder", "empty-file", "no-known-word", "binary"],
)
def test_text_that_cannot_be_used_is_told_without_a_word_of_it(
    scene: Scene, content: bytes | None, said: str
) -> None:
    file = scene.data / "messages.txt"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)

    failed = scene.failure()

    assert failed.code == "data_unusable"
    assert said in failed.reason
    assert "zzzzzz" not in failed.reason


def test_missing_text_is_told(scene: Scene) -> None:
    assert scene.failure(data="/no/such/folder").code == "data_unusable"


@pytest.mark.parametrize("place", [0, 700, -1])
def test_a_model_with_one_flipped_bit_is_not_trained(scene: Scene, place: int) -> None:
    sealed = bytearray(scene.model.read_bytes())
    sealed[place] ^= 1
    scene.model.write_bytes(sealed)

    assert scene.failure().code == "unseal_failed"


def test_the_model_of_another_round_is_not_trained(scene: Scene) -> None:
    scene.seal_model(base=hashlib.sha256(b"another").digest())

    assert scene.failure().code == "unseal_failed"


def test_another_word_list_is_a_mismatch(scene: Scene) -> None:
    own = msgspec.structs.replace(shipped_words(), name="own")
    plan = msgspec.structs.replace(scene.plan, vocabulary=own)

    assert scene.failure(plan).code == "vocabulary_mismatch"


def test_a_full_disk_is_told_and_nothing_half_written_is_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("privacy.foundation.atomic_files.os.write", full)

    failed = scene.failure()

    assert failed.code == "disk"
    assert "No space left" in failed.reason
    assert {path.name for path in scene.update.parent.iterdir()} == {
        "device",
        "text",
        "model.sealed",
    }


def test_training_that_diverges_is_told(scene: Scene) -> None:
    training = TrainingSettings(learning_rate=1e30, batch_size=3, bptt_steps=4, local_epochs=3)
    plan = msgspec.structs.replace(scene.plan, training=training)

    assert scene.failure(plan).code == "update_not_finite"


def test_a_task_that_only_the_coordinator_knows_is_told(scene: Scene) -> None:
    plan = msgspec.structs.replace(scene.plan, task="handwriting")

    failed = scene.failure(plan)

    assert failed.code == "plan_unusable"
    assert "'handwriting'" in failed.reason


def test_keys_settings_and_devices_that_cannot_be_used_are_told_apart(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert scene.failure(device="cuda").code == "device_missing"

    (scene.device / "client.toml").write_text("keep_warm = 1\n")
    assert scene.failure().code == "settings_unusable"

    (scene.device / "coordinator.json").write_text("{}")
    assert scene.failure().code == "identity_unusable"

    assert scene.failure(device_folder="/no/such/folder").code == "identity_unusable"


def test_a_coordinator_whose_certificates_are_over_is_not_trained_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_year = time.time() + 365 * 86_400
    monkeypatch.setattr("edge_client.child.work.time.time", lambda: in_a_year)

    assert scene.failure().code == "certificate_unusable"


EXAMPLE_PRIVACY = ExamplePrivacySettings(
    clipping_norm=0.5, noise_multiplier=1.0, sampling_rate=0.5, delta=1e-5
)


def with_example_privacy(plan: Plan) -> Plan:
    training = msgspec.structs.replace(plan.training, example_privacy=EXAMPLE_PRIVACY)
    return msgspec.structs.replace(plan, training=training)


@pytest.mark.slow
def test_example_privacy_is_accounted_on_the_device_round_by_round(scene: Scene) -> None:
    plan = with_example_privacy(scene.plan)
    ledger = DeviceFolder(scene.device).example_ledger

    outcomes = [do_job(scene.job(plan)) for _ in range(2)]

    spent = read_spending(ledger)
    # Two steps a round, as each example is drawn in every second one.
    assert spent.events == (EXAMPLE_PRIVACY.event(2),)
    assert (spent.round_count, spent.delta) == (2, 1e-5)
    assert spent.epsilon == example_epsilon(spent.events, 1e-5)
    assert ledger.stat().st_mode & 0o077 == 0
    # Neither how much was spent nor how much was typed is in what goes out: 3 / 0.5 examples of 4.
    for outcome in outcomes:
        assert isinstance(outcome, Trained)
        assert outcome.example_count == 24


def test_an_update_that_cannot_be_paid_for_is_not_sent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, spending: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("edge_client.child.work.write_spending", fails)

    assert scene.failure(with_example_privacy(scene.plan)).code == "disk"


@pytest.mark.slow
def test_a_device_stops_before_the_round_that_would_pass_its_owners_budget(scene: Scene) -> None:
    plan = with_example_privacy(scene.plan)
    # At the owner's delta: one round is within the budget, two are not.
    one, two = (
        example_epsilon([msgspec.structs.replace(EXAMPLE_PRIVACY.event(1), step_count=steps)], 1e-6)
        for steps in (2, 4)
    )
    floor = DeviceFolder(scene.device).floor
    budget = f"[example_privacy]\nepsilon = {(one + two) / 2}\ndelta = 1e-6\n"
    floor.write_text(floor.read_text() + budget)
    assert isinstance(do_job(scene.job(plan)), Trained)
    spent = read_spending(DeviceFolder(scene.device).example_ledger)
    assert (spent.epsilon, spent.delta) == (one, 1e-6)
    scene.update.unlink()

    failed = scene.failure(plan)

    assert failed.code == "example_budget_spent"
    assert "floor.toml" in failed.reason
    assert read_spending(DeviceFolder(scene.device).example_ledger) == spent


def test_without_example_privacy_nothing_is_accounted(scene: Scene) -> None:
    do_job(scene.job())

    assert not DeviceFolder(scene.device).example_ledger.exists()


@pytest.mark.slow
def test_a_ledger_that_cannot_be_read_stops_example_privacy_alone(scene: Scene) -> None:
    ledger = DeviceFolder(scene.device).example_ledger
    ledger.write_text("torn")

    failed = scene.failure(with_example_privacy(scene.plan))

    assert failed.code == "example_ledger_unusable"
    assert ledger.read_text() == "torn"
    assert isinstance(do_job(scene.job()), Trained)


def test_a_device_without_the_extra_says_which_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    failed = scene.failure(with_example_privacy(scene.plan))

    assert failed.code == "accountant_unusable"
    assert failed.reason.endswith("install sotto[dp-sgd]")


def test_a_method_that_keeps_nothing_does_not_mind_what_lies_there(scene: Scene) -> None:
    personal = DeviceFolder(scene.device).personal
    personal.waiting(b"m" * 16).write_bytes(b"of an earlier method")
    personal.accept(b"m" * 16)

    assert isinstance(do_job(scene.job()), Trained)


def test_a_device_without_zstd_refuses_a_plan_that_asks_for_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = CompressionSettings(uplink="int8", entropy="zstd")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *rest: None if name == "zstandard" else found(name, *rest),
    )

    failure = scene.failure(msgspec.structs.replace(scene.plan, compression=settings))

    assert failure.code == "zstd_missing"
    assert "install sotto[zstd]" in failure.reason
