"""A release that comes as what changed is the one that the lease names, or it is refused."""

import hashlib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge_client.child.sealed_exchange import SealedExchange, Start
from edge_client.child.work import do_job
from edge_client.folder.held_release import HeldRelease, HeldReleaseError
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Failed, Job
from models.compression.release_delta import delta_sha256, encode_delta
from models.settings.compression import CompressionSettings
from models.vector.codec import CodecError, FlatVector
from privacy.identities.party import Identity
from privacy.sealing.envelope import Direction, seal
from tests.edge_client.job_scene import PARAMETERS, SCHEMA, Enrolled, Scene, enrol_device

STEP = 2.0**-10
EARLIER = (np.rint(PARAMETERS.numpy() / STEP) * STEP).astype(np.float32)
LATER = EARLIER + np.float32(STEP)


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_device(tmp_path_factory.mktemp("enrolled"))


def named(flat: FlatVector) -> bytes:
    return hashlib.sha256(flat.tobytes()).digest()


class MovedScene(Scene):
    """Hold a job whose lease names ``LATER`` and whose model comes as what changed."""

    def __init__(self, folder: Path, enrolled: Enrolled) -> None:
        super().__init__(folder, enrolled)
        settings = CompressionSettings(uplink="none", downlink="delta", downlink_step=STEP)
        self.plan = msgspec.structs.replace(self.plan, compression=settings)

    @property
    def held(self) -> HeldRelease:
        return DeviceFolder(self.device).held

    def hold(self, flat: FlatVector) -> None:
        """Let the device hold a release, which its lease's model is said to lead from."""
        self.held.keep(named(flat), flat.tobytes())

    def seal_way(self, base: FlatVector | None, target: FlatVector) -> None:
        """Seal what leads from one release to another as the way from what is held to ``LATER``."""
        context = replace(
            self.context(Direction.DOWNLINK, named(LATER)),
            schema_sha256=delta_sha256(SCHEMA, self.held.sha256),
        )
        recipient = Identity.load(self.device / "identity").wrapping.certified
        payload = encode_delta(SCHEMA, base, target, STEP)
        sealed = seal(payload, context, sender=self.coordinator, recipient=recipient)
        self.model.write_bytes(b"".join(map(bytes, sealed.views())))

    def moved_job(self) -> Job:
        held = self.held.sha256
        return msgspec.structs.replace(self.job(), base_sha256=named(LATER), held_sha256=held)

    def open(self) -> Start:
        identity, folder = Identity.load(self.device / "identity"), DeviceFolder(self.device)
        return SealedExchange(self.moved_job(), self.plan, identity, folder).open_model()


@pytest.fixture
def scene(tmp_path: Path, enrolled: Enrolled) -> MovedScene:
    return MovedScene(tmp_path, enrolled)


@pytest.mark.slow
@pytest.mark.parametrize("base", [None, EARLIER], ids=["whole", "moved"])
def test_what_changed_leads_to_the_release_that_the_lease_names(
    scene: MovedScene, base: FlatVector | None
) -> None:
    if base is not None:
        scene.hold(base)
    scene.seal_way(base, LATER)

    start = scene.open()

    assert np.array_equal(start.parameters.numpy(), LATER)
    assert start.sha256 == named(LATER)
    # It is what the next one may lead from.
    assert scene.held.sha256 == named(LATER)
    assert scene.held.read(named(LATER)) == LATER.tobytes()


@pytest.mark.slow
def test_a_way_that_leads_elsewhere_is_refused_and_the_next_model_is_fetched_whole(
    scene: MovedScene,
) -> None:
    scene.hold(EARLIER)
    # Everything that is signed is right; only where it starts is a step off.
    scene.seal_way(EARLIER - np.float32(STEP), LATER)

    with pytest.raises(HeldReleaseError, match="must lead to the release that the lease names"):
        scene.open()

    assert scene.held.sha256 is None


@pytest.mark.slow
def test_a_release_of_another_model_leads_nowhere(scene: MovedScene) -> None:
    scene.hold(EARLIER[:-1])
    scene.seal_way(EARLIER, LATER)

    with pytest.raises(CodecError, match=rf"of shape \({SCHEMA.element_count},\)"):
        scene.open()


def test_a_held_release_that_is_damaged_is_no_fault_of_the_plan(scene: MovedScene) -> None:
    scene.hold(EARLIER)
    scene.seal_way(EARLIER, LATER)
    job = scene.moved_job()
    (file,) = (scene.device / "held").iterdir()
    file.write_bytes(LATER.tobytes())

    outcome = do_job(job)

    # Told so, the agent asks for another lease instead of refusing the plan.
    assert isinstance(outcome, Failed)
    assert outcome.code == "unseal_failed"
    assert scene.held.sha256 is None
