"""Where the coordinator is an onlooker, a job's outcome is the same whatever the text leads to."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from edge_client.child.optimiser_store import load_state
from edge_client.child.received_model import LARGEST_PARAMETER, UnusableModelError, check_received
from edge_client.child.work import do_job
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Failed, Fitted, Trained
from edge_client.owner.typed_text import TypedText
from edge_client.personalisation.state import read_state
from edge_client.training.local_round import LocalTrainer
from models.plan.plan import Plan
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.personalisation import DittoSettings
from models.vector.codec import FlatVector, decode, payload_size
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.identities.party import Identity
from privacy.noise.calibrated_settings import LocalNoise
from privacy.noise.settings import NoNoise
from privacy.sealing.envelope import Direction, open_sealed
from tests.edge_client.job_scene import PARAMETERS, SCHEMA, Enrolled, Scene, enrol_device

LOCAL = LocalNoise(clipping_norm=1.0, noise_multiplier=1.0, delta=1e-5, epsilon_budget=1e9)
PRIVATE = ExamplePrivacySettings(
    clipping_norm=0.5, noise_multiplier=1.0, sampling_rate=1.0, delta=1e-5
)


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_device(tmp_path_factory.mktemp("enrolled"))


@pytest.fixture
def scene(tmp_path: Path, enrolled: Enrolled) -> Scene:
    return Scene(tmp_path, enrolled)


def hiding(scene: Scene, *, by_example: bool = False, **training: Any) -> Plan:
    """Return a plan whose onlooker is the coordinator: ``local``, or hidden sentences without."""
    settings = msgspec.structs.replace(scene.plan.training, **training)
    if by_example:
        settings = msgspec.structs.replace(settings, example_privacy=PRIVATE)
    privacy = NoNoise() if by_example else LOCAL
    return msgspec.structs.replace(scene.plan, privacy=privacy, training=settings)


def sent(scene: Scene) -> FlatVector:
    """Open the update as the coordinator does."""
    payload = open_sealed(
        [scene.update.read_bytes()],
        scene.context(Direction.UPLINK),
        payload_bytes=payload_size(SCHEMA),
        recipient=scene.coordinator,
        sender=Identity.load(scene.device / "identity").signing.certified,
    )
    return decode(SCHEMA, payload)


@pytest.fixture
def _no_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    # It follows from the steps alone, and takes half a second.
    monkeypatch.setattr("edge_client.child.work.example_epsilon", lambda events, delta: 0.0)


@pytest.mark.usefixtures("_no_epsilon")
@pytest.mark.parametrize("by_example", [False, True])
@pytest.mark.parametrize(
    "content",
    [None, b"", b"zzzzzz 12345", b"\xff\xfe damaged", b"\x00\x01\xff\xfe" * 50],
    ids=["empty-folder", "empty-file", "no-known-word", "not-utf-8", "binary"],
)
def test_a_text_that_cannot_be_used_gets_noise_like_any_other(
    scene: Scene, content: bytes | None, *, by_example: bool
) -> None:
    file = scene.data / "messages.txt"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)

    outcome = do_job(scene.job(hiding(scene, by_example=by_example)))

    assert isinstance(outcome, Trained)
    # A tenth of what the noise of a step is: 0.5 times z times C = 0.5 over a batch of 3.
    assert np.abs(sent(scene)).max() > (0.008 if by_example else 0.2)
    # Of 3 expected examples of 4 words, or nothing under a guarantee.
    assert outcome.example_count == (12 if by_example else 0)


def test_training_that_diverges_gets_noise_like_any_other(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    plan = hiding(scene, learning_rate=1e6, local_epochs=50, weight_decay=1e5)

    outcome = do_job(scene.job(plan))

    assert outcome == Trained(example_count=0, message_id=outcome.message_id)  # type: ignore[union-attr]
    # 2C z on each of 302 elements, and nothing else: a mean square of 4, within a third of it.
    assert np.square(sent(scene)).mean() == pytest.approx(4.0, rel=1 / 3)
    assert "nothing was learnt in this round" in caplog.text


@pytest.mark.parametrize("size", [LARGEST_PARAMETER * 1.01, 1e30])
def test_a_model_beyond_the_bound_is_refused_before_any_text_is_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, size: float
) -> None:
    crafted = PARAMETERS.clone()
    crafted[7] = size
    monkeypatch.setattr("tests.edge_client.job_scene.PARAMETERS", crafted)
    scene.seal_model()

    failed = do_job(scene.job(hiding(scene), data="/no/such/folder"))

    assert isinstance(failed, Failed)
    assert failed.code == "model_unusable"
    # Other modes leave it to training: nothing is promised there against the coordinator.
    assert isinstance(do_job(scene.job()), Trained | Failed)


def test_numbers_below_the_normal_range_become_zero() -> None:
    parameters = torch.tensor([1.0, 1e-38, -1e-40, 1e-45, 0.0, -LARGEST_PARAMETER])

    check_received(parameters)

    assert parameters.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, -LARGEST_PARAMETER]
    with pytest.raises(UnusableModelError):
        check_received(torch.tensor([0.0, float("nan")]))
    check_received(torch.empty(0))


def test_a_text_that_is_deleted_after_use_is_deleted_whatever_training_made_of_it(
    scene: Scene,
) -> None:
    # Ten messages, the last two held out; one word alone is in the list that was chosen.
    (scene.device / "client.toml").write_text("[text]\ndelete_after_use = true\n")
    left = []
    for word in ("the", "zzzzzz"):
        scene.data = scene.data.parent / f"{word}.jsonl"
        rows = [TypedText(text=f"{word} {word}", time=float(i)) for i in range(10)]
        scene.data.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))

        assert isinstance(do_job(scene.job(hiding(scene))), Trained)

        left.append(len(scene.data.read_bytes().splitlines()))
    assert left == [2, 2]


def test_a_state_that_training_spoilt_is_kept_as_it_was(scene: Scene) -> None:
    spoilt = hiding(scene, learning_rate=1e6, local_epochs=50, weight_decay=1e5)
    spoilt = msgspec.structs.replace(spoilt, personalisation=DittoSettings())
    optimiser = {"optimiser_state": "kept", "momentum": 0.9}
    training = msgspec.structs.replace(spoilt.training, **optimiser)
    spoilt = msgspec.structs.replace(spoilt, training=training)
    layout = LocalTrainer(spoilt).layout
    folder = DeviceFolder(scene.device)

    outcome = do_job(scene.job(spoilt))

    assert isinstance(outcome, Trained)
    state = read_state(folder.personal.waiting(outcome.message_id), layout)
    # As for a client that never trained: the model that was received.
    assert state is not None
    assert torch.equal(torch.cat([part.reshape(-1) for part in state.extras.values()]), PARAMETERS)
    assert load_state(folder.optimiser, spoilt) is None


@pytest.mark.parametrize("text", [b"the to and\nand the", b"\xff\xfe"])
def test_a_fit_is_done_whatever_the_text_is(scene: Scene, text: bytes) -> None:
    (scene.data / "messages.txt").write_bytes(text)
    plan = msgspec.structs.replace(
        hiding(scene),
        kind="fit_personal",
        embedding_fit=EmbeddingFitSettings(),
        personalisation=DittoSettings(),
    )

    outcome = do_job(scene.job(plan))

    assert isinstance(outcome, Fitted)
    waiting = DeviceFolder(scene.device).personal.waiting(outcome.message_id)
    assert read_state(waiting, LocalTrainer(plan).layout) is not None


def test_a_job_that_leaves_the_data_out_does_not_read_them(scene: Scene) -> None:
    job = msgspec.structs.replace(scene.job(hiding(scene)), leaves_data_out=True)

    assert isinstance(do_job(msgspec.structs.replace(job, data="/no/such/folder")), Trained)


def test_numbers_below_the_normal_range_cost_no_time_where_time_would_tell_of_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = []

    def note(*_: object) -> None:
        products.append(float(torch.tensor(1e-30) * torch.tensor(1e-10)))

    monkeypatch.setattr("edge_client.child.work.load_state", note)

    do_job(scene.job(hiding(scene)))
    do_job(scene.job())

    assert products == [0.0, pytest.approx(1e-40, rel=1e-4)]
