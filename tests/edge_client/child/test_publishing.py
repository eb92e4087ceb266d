"""A personal part leaves its device as one signed file, when its owner says so and not before."""

import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.child import publishing
from edge_client.child.work import do_job
from edge_client.cli import main
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Trained
from edge_client.owner.doctor import _personalisation
from edge_client.personalisation.state import StateLayout, read_state
from edge_client.training.local_round import LocalTrainer
from models.plan.plan import plan_schema
from models.plan.published_part import (
    PublishedPartError,
    decode_published,
    encode_published,
)
from models.settings.personalisation import AdaptedSettings, FedTpSettings, VanillaSettings
from privacy.identities.party import Identity
from tests.edge_client.job_scene import Enrolled, enrol_device, examples
from tests.edge_client.personalisation.test_personal_work import PersonalScene
from tests.privacy.conftest import RUN


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_device(tmp_path_factory.mktemp("enrolled"))


@pytest.fixture
def scene(tmp_path: Path, enrolled: Enrolled) -> PersonalScene:
    """Return a device that has trained one acknowledged round of vanilla personalisation."""
    scene = PersonalScene(tmp_path, enrolled, VanillaSettings())
    trained = do_job(scene.job())
    assert isinstance(trained, Trained)
    folder = DeviceFolder(scene.device)
    folder.note_plan(scene.plan.encode())
    folder.personal.accept(trained.message_id)
    return scene


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the job of the process that publishes in this one, which has torch loaded."""

    def run(command: Sequence[str], **given: Any) -> subprocess.CompletedProcess[bytes]:
        assert command[-1] == publishing.__name__
        job, out, err = (io.BytesIO(content) for content in (given["input"], b"", b""))
        with monkeypatch.context() as patched:
            for name, stream in (("stdin", job), ("stdout", out), ("stderr", err)):
                patched.setattr(sys, name, io.TextIOWrapper(stream, write_through=True))
            status = publishing.main()
            return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())

    monkeypatch.setattr("edge_client.jobs.publishing_job.subprocess.run", run)


def publish(scene: PersonalScene, target: Path, *more: str) -> int:
    return main(["publish", str(scene.device), "--out", str(target), *more])


def authority_of(enrolled: Enrolled) -> bytes:
    return Identity.load(enrolled.device / "identity").authority


@pytest.mark.slow
def test_the_file_holds_the_personal_tensors_and_says_whose_they_are(
    tmp_path: Path,
    scene: PersonalScene,
    enrolled: Enrolled,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "mine.published"

    assert publish(scene, target, "--agree") == 0

    part = decode_published(target.read_bytes(), authority=authority_of(enrolled))
    layout = StateLayout.of(plan_schema(scene.plan), ())
    kept = read_state(DeviceFolder(scene.device).personal.current, layout)
    assert kept is not None
    assert list(part.tensors) == ["blocks.0.attention.to_qkv.weight"]
    np.testing.assert_array_equal(
        part.tensors["blocks.0.attention.to_qkv.weight"].ravel(), kept.personal.numpy()
    )
    assert part.record.client == "device-0001"
    assert (part.record.run, part.record.method) == (RUN.hex(), "vanilla")
    assert target.stat().st_mode & 0o077 == 0
    assert "nothing was sent" in capsys.readouterr().out


def test_without_the_owners_word_nothing_is_written(tmp_path: Path, scene: PersonalScene) -> None:
    with pytest.raises(SystemExit):
        publish(scene, tmp_path / "mine.published")
    assert not (tmp_path / "mine.published").exists()


@pytest.mark.usefixtures("in_process")
def test_a_method_that_keeps_no_tensor_has_nothing_to_publish(
    tmp_path: Path, enrolled: Enrolled, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = PersonalScene(tmp_path, enrolled, FedTpSettings())
    DeviceFolder(scene.device).note_plan(scene.plan.encode())

    assert publish(scene, tmp_path / "mine.published", "--agree") == 1

    assert 'method "fedtp" keeps no tensor' in capsys.readouterr().err
    assert not (tmp_path / "mine.published").exists()


def adapting(folder: Path, enrolled: Enrolled, newest: str) -> PersonalScene:
    """Return a device that has adapted everyone's model to text whose newest part is another."""
    method = AdaptedSettings(epochs=2, learning_rate=0.5)
    scene = PersonalScene(folder, enrolled, method)
    # The last fifth is held out of everything, and the last fifth of the rest decides.
    lines = ["the to and the"] * 64 + [newest] * 16 + ["and to"] * 20
    (scene.data / "messages.txt").write_text("\n".join(lines))
    trained = do_job(scene.job())
    assert isinstance(trained, Trained)
    device = DeviceFolder(scene.device)
    device.note_plan(scene.plan.encode())
    device.note_travel("all of it")
    device.personal.accept(trained.message_id)
    return scene


@pytest.mark.usefixtures("in_process")
def test_a_device_hands_over_its_own_model_if_that_does_better(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    scene = adapting(tmp_path, enrolled, "the to and the")

    assert publish(scene, tmp_path / "mine.published", "--agree") == 0

    encoded = (tmp_path / "mine.published").read_bytes()
    part = decode_published(encoded, authority=authority_of(enrolled))
    text = examples(["the to and the"] * 80)
    alone = LocalTrainer(scene.plan).train(
        scene.parameters, text, round_number=1, client_name="device-0001"
    )
    # As a simulation of the device, to the bit.
    assert alone.personal is not None
    assert list(part.tensors) == list(plan_schema(scene.plan).slices)
    for name, tensor in part.tensors.items():
        np.testing.assert_array_equal(tensor, alone.personal.extras[f"own.{name}"].numpy())
    told = _personalisation(DeviceFolder(scene.device))
    assert "; adapted: better on this device's newest data than everyone's, " in told


@pytest.mark.usefixtures("in_process")
def test_a_device_whose_own_model_does_worse_has_nothing_to_hand_over(
    tmp_path: Path, enrolled: Enrolled, capsys: pytest.CaptureFixture[str]
) -> None:
    # No word of the older text: all that is learnt makes these less likely.
    scene = adapting(tmp_path, enrolled, "of in is of")

    assert publish(scene, tmp_path / "mine.published", "--agree") == 1

    assert "everyone's model is no worse" in capsys.readouterr().err
    assert not (tmp_path / "mine.published").exists()
    assert "; not adapted: " in _personalisation(DeviceFolder(scene.device))


@pytest.mark.usefixtures("in_process")
def test_before_the_first_round_there_is_nothing_to_publish(
    tmp_path: Path, enrolled: Enrolled, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = PersonalScene(tmp_path, enrolled, VanillaSettings())

    assert publish(scene, tmp_path / "mine.published", "--agree") == 1
    assert "has seen no round yet" in capsys.readouterr().err
    DeviceFolder(scene.device).note_plan(scene.plan.encode())
    assert publish(scene, tmp_path / "mine.published", "--agree") == 1
    assert "no personal part is kept yet" in capsys.readouterr().err


@pytest.mark.usefixtures("in_process")
def test_a_changed_file_is_refused(
    scene: PersonalScene, enrolled: Enrolled, tmp_path: Path
) -> None:
    publish(scene, tmp_path / "mine.published", "--agree")

    for place, rule in (
        (0, "must start with"),
        (8, "version of a published part must be 1, got"),
        (40, "cannot be trusted: the published part was not signed by this key"),
        (12, "bytes, got"),
    ):
        encoded = bytearray((tmp_path / "mine.published").read_bytes())
        encoded[place] ^= 0xFF
        with pytest.raises(PublishedPartError, match=rule):
            decode_published(bytes(encoded), authority=authority_of(enrolled))


@pytest.mark.usefixtures("in_process")
def test_a_device_cannot_publish_in_anothers_name(
    scene: PersonalScene, enrolled: Enrolled, tmp_path: Path
) -> None:
    publish(scene, tmp_path / "mine.published", "--agree")
    authority = authority_of(enrolled)
    part = decode_published((tmp_path / "mine.published").read_bytes(), authority=authority)
    device = Identity.load(scene.device / "identity")
    stolen = type(part.record)(run=RUN.hex(), client="ben", method="vanilla", schema_sha256="")
    others = enrol_device(tmp_path / "other")

    for encoded, rule in (
        (encode_published(stolen, part.tensors, device), "of ben must be signed by its device"),
        (
            encode_published(part.record, part.tensors, enrolled.coordinator),
            "with a device's signing key, got a coordinator's",
        ),
        (
            encode_published(part.record, part.tensors, Identity.load(others.device / "identity")),
            "not issued by this federation's authority",
        ),
    ):
        with pytest.raises(PublishedPartError, match=rule):
            decode_published(encoded, authority=authority)


def test_the_command_itself_loads_no_torch() -> None:
    code = "import sys, edge_client.cli; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
