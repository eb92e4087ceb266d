"""A device makes its owner's file of everyone's bundle, and it is the one the coordinator makes."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx.numpy_helper import to_array

from export.bundles.keyboard_bundle import load_bundle
from export.bundles.manifest_entries import BundleError
from export.cli import main
from export.faces.gru_weights import as_weights
from export.faces.personal_inputs import personal_inputs
from export.graphs.gru import GruGraph
from export.graphs.registry import exporter_for
from export.making.person_of_device import export_own
from export.making.released_model import verify_bundle
from export.people.personal_file import ADAPTER_FILE, load_personal_file, write_personal_file
from export.releases.release import read_authority
from export.runtime.word_graph import NextWordGraph
from models.plan.plan import Plan, plan_schema, released_schema
from models.plan.published_part import PublishedRecord, decode_published, encode_published
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import (
    AdaptedSettings,
    FedPerSettings,
    PersonalisationSettings,
    VanillaSettings,
)
from models.text.vocabulary import Vocabulary
from models.vector.codec import named_tensors
from models.vector.schema import Role
from privacy.identities.party import Identity
from server.releases.files import NewRelease, ReleaseFolder
from tests.export.conftest import (
    NOW,
    SETTINGS,
    Federation,
    plan_of,
    random_parameters,
)
from tests.export.making.test_image import image_plan
from tests.export.people_scene import FEDTP, PERSONAL_SETTINGS, release_with_people

Tensors = dict[str, np.ndarray]
DEVICE = "device-0001"
UNTIED = msgspec.structs.replace(SETTINGS, tied=False)


@dataclass(frozen=True)
class Home:
    """Hold a coordinator's folder with one release, and a device that keeps a part of it.

    Attributes:
        server: The coordinator's folder.
        authority: ``authority.crt``.
        plan: The run's.
        tensors: Every tensor of the device's model, by name.
        device: Signs what the device publishes.
    """

    server: Path
    authority: Path
    plan: Plan
    tensors: Tensors
    device: Identity

    def publish(self, target: Path, **changes: str) -> Path:
        """Write what the device publishes; ``changes`` go into its record."""
        record = PublishedRecord(
            run=self.plan.run,
            client=self.device.name,
            method=self.plan.personalisation.method,
            schema_sha256=self.plan.schema_sha256,
        )
        personal = plan_schema(self.plan).with_roles(Role.PERSONAL).slices
        own = {name: self.tensors[name] for name in personal}
        target.write_bytes(
            encode_published(msgspec.structs.replace(record, **changes), own, self.device)
        )
        return target


MakeHome = Callable[[Plan, Vocabulary | None], Home]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory, federation: Federation) -> Identity:
    folder = tmp_path_factory.mktemp("device") / "identity"
    requests = Identity.create_requests(folder, DEVICE)
    issued = federation.authority.issue_all(requests, name=DEVICE, role="device", now=NOW)
    ca = federation.authority.certificate
    return Identity.install(folder, issued, ca=ca, role="device", now=NOW)


@pytest.fixture
def make_home(tmp_path: Path, federation: Federation, device: Identity) -> MakeHome:
    def make(plan: Plan, vocabulary: Vocabulary | None) -> Home:
        tensors = named_tensors(schema_of(plan.model), random_parameters(plan.model))
        released = [tensors[name].ravel() for name in released_schema(plan).slices]
        server = tmp_path / "server"
        server.mkdir()
        for name in ("authority", "identity"):
            (server / name).symlink_to(federation.folder / name)
        releases = ReleaseFolder(server / "releases")
        new = NewRelease(
            round_number=1,
            attempt=0,
            plan=plan,
            vocabulary=vocabulary,
            parameters=np.concatenate(released),
            previous_sha256=bytes(32),
            metrics={},
            guarantee="no privacy guarantee",
            personalisation=None,
        )
        releases.build(new, federation.coordinator)
        releases.publish(1)
        return Home(server, server / "authority" / "authority.crt", plan, tensors, device)

    return make


@pytest.fixture
def fedper(tmp_path: Path, make_home: MakeHome, vocabulary: Vocabulary) -> Home:
    """A federation of FedPer, its bundle for everyone beside it, and what the device published."""
    home = make_home(plan_of(UNTIED, vocabulary, personalisation=FedPerSettings()), vocabulary)
    main(["keyboard", str(home.server), "--out", str(tmp_path / "shared.zip")])
    home.publish(tmp_path / "mine.published")
    return home


def personal(source: Path, published: Path, target: Path, *more: object) -> int:
    asked = ["personal", source, "--published", published, "--out", target, *more]
    return main([str(word) for word in asked])


@pytest.mark.parametrize(
    ("kept", "resting"),
    [
        ((UNTIED, FedPerSettings()), "float32"),
        ((PERSONAL_SETTINGS, VanillaSettings()), "int8"),
    ],
)
def test_the_devices_file_is_the_coordinators_byte_for_byte(
    tmp_path: Path,
    make_home: MakeHome,
    vocabulary: Vocabulary,
    kept: tuple[ModelSettings, PersonalisationSettings],
    resting: str,
) -> None:
    home = make_home(plan_of(kept[0], vocabulary, personalisation=kept[1]), vocabulary)
    shared, mine = tmp_path / "shared.zip", home.publish(tmp_path / "mine.published")
    assert main(["keyboard", str(home.server), "--out", str(shared)]) == 0

    at_rest, authority = ["--at-rest", resting], ["--authority", home.authority]
    assert personal(shared, mine, tmp_path / "device", *at_rest, *authority) == 0
    assert personal(home.server, mine, tmp_path / "server's", *at_rest) == 0

    for name in ("manifest.json", ADAPTER_FILE):
        ours, theirs = tmp_path / "device" / name, tmp_path / "server's" / name
        assert ours.read_bytes() == theirs.read_bytes()
    own = load_personal_file(tmp_path / "device")
    assert (own.signer, own.manifest.client) == (None, "device-0001")
    bundle = load_bundle(shared)
    own.on(NextWordGraph(bundle.graph), bundle.manifest)


@pytest.mark.slow
def test_a_device_needs_no_torch_and_no_onnx_for_it(tmp_path: Path, fedper: Home) -> None:
    shared, mine = tmp_path / "shared.zip", tmp_path / "mine.published"
    asked = ["personal", shared, "--published", mine, "--out", tmp_path / "mine.zip"]
    arguments = [str(word) for word in [*asked, "--authority", fedper.authority]]
    script = (
        "import sys; from export.cli import main; "
        f"status = main({arguments!r}); "
        "print(sorted({'torch', 'onnx', 'grpc'} & set(sys.modules)), status)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[] 0"
    assert load_personal_file(tmp_path / "mine.zip").manifest.origin == "published"


@pytest.mark.slow
def test_a_whole_bundle_from_the_device_holds_the_graph_that_the_exporter_writes(
    tmp_path: Path, make_home: MakeHome, vocabulary: Vocabulary
) -> None:
    plan = plan_of(PERSONAL_SETTINGS, vocabulary, personalisation=VanillaSettings())
    home = make_home(plan, vocabulary)
    shared, mine = tmp_path / "shared.zip", home.publish(tmp_path / "mine.published")
    main(["keyboard", str(home.server), "--out", str(shared)])

    asked = ["--whole", "--authority", home.authority]
    assert personal(shared, mine, tmp_path / "whole.zip", *asked) == 0

    checked = verify_bundle(tmp_path / "whole.zip")  # Holds it against torch, too.
    expected = exporter_for(plan.model).build(home.tensors).SerializeToString(deterministic=True)
    assert checked.bundle.graph == expected
    manifest = checked.bundle.manifest
    assert (manifest.client, manifest.personal) == ("device-0001", None)
    assert checked.bundle.signer is None


def test_a_device_makes_its_whole_classifier_too(tmp_path: Path, make_home: MakeHome) -> None:
    home = make_home(image_plan(VanillaSettings()), None)
    shared, mine = tmp_path / "shared.zip", home.publish(tmp_path / "mine.published")
    assert main(["image", str(home.server), "--out", str(shared)]) == 0

    asked = ["--whole", "--authority", home.authority]
    assert personal(shared, mine, tmp_path / "whole.zip", *asked) == 0

    found = verify_bundle(tmp_path / "whole.zip")
    assert found.bundle.manifest.client == "device-0001"
    assert found.parity is not None


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"run": "f" * 32}, "run of device-0001's published part must be 0123"),
        ({"method": "fedrep"}, "part must be fedper, the bundle's, got fedrep"),
        ({"schema_sha256": "0" * 64}, "schema of device-0001's published part must be"),
    ],
)
def test_a_part_of_another_run_method_or_model_is_refused(
    tmp_path: Path,
    fedper: Home,
    changes: dict[str, str],
    rule: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    foreign = fedper.publish(tmp_path / "foreign.published", **changes)
    target = tmp_path / "own.zip"

    status = personal(tmp_path / "shared.zip", foreign, target, "--authority", fedper.authority)

    assert status == 1
    assert rule in capsys.readouterr().err
    assert not target.exists()


def test_what_cannot_be_trusted_or_made_of_a_bundle_is_refused(
    tmp_path: Path,
    fedper: Home,
    bundle_folder: Path,
    other_federation: Federation,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shared, rounded = tmp_path / "shared.zip", tmp_path / "rounded.zip"
    main(["keyboard", str(fedper.server), "--out", str(rounded), "--precision", "int8"])
    mine, target = tmp_path / "mine.published", tmp_path / "own.zip"
    trusted = ["--authority", fedper.authority]
    foreign = ["--authority", other_federation.folder / "authority" / "authority.crt"]

    for source, more, rule in (
        (shared, [], "trusted by its signature: give --authority"),
        (shared, foreign, "not issued by this federation's authority"),
        (bundle_folder, trusted, "manifest.sig must be"),
        (shared, [*trusted, "--client", "ben"], "got --client ben"),
        (shared, [*trusted, "--round", "7"], "leave out --round"),
        (rounded, [*trusted, "--whole"], "must be made of a float32 bundle, got int8"),
        (fedper.server, ["--whole"], "give the bundle as SOURCE"),
    ):
        capsys.readouterr()
        assert personal(source, mine, target, *more) == 1
        assert rule in capsys.readouterr().err
    assert main(["personal", str(shared), "--out", str(target), "--client", "ben"]) == 1
    assert "a bundle holds what everyone shares" in capsys.readouterr().err
    assert not target.exists()


@pytest.fixture
def both_sides(
    tmp_path: Path, make_home: MakeHome, vocabulary: Vocabulary, federation: Federation
) -> Home:
    """A federation of FedTP with heads of their own, its bundle, and both parts of the device's."""
    method = msgspec.structs.replace(FEDTP, head="personal")
    plan = plan_of(PERSONAL_SETTINGS, vocabulary, personalisation=method)
    home = make_home(plan, vocabulary)
    with_state = release_with_people(
        tmp_path / "learnt", vocabulary, plan=plan, signer=federation.coordinator, people=(DEVICE,)
    )
    assert with_state.personalisation is not None
    shutil.rmtree(home.server / "releases")
    (tmp_path / "learnt" / "releases").rename(home.server / "releases")
    server = str(home.server)
    main(["keyboard", server, "--out", str(tmp_path / "shared.zip")])
    made = ["--generated-only", "--client", DEVICE, "--out", str(tmp_path / "made.zip")]
    assert main(["personal", server, *made]) == 0
    home.publish(tmp_path / "mine.published")
    return home


@pytest.mark.parametrize("resting", ["float32", "int8"])
def test_a_device_puts_its_part_and_what_was_made_for_it_together(
    tmp_path: Path, both_sides: Home, resting: str
) -> None:
    shared, mine = tmp_path / "shared.zip", tmp_path / "mine.published"
    more = ["--at-rest", resting]
    given = ["--generated", tmp_path / "made.zip", "--authority", both_sides.authority]

    assert personal(shared, mine, tmp_path / "device", *more, *given) == 0
    assert personal(both_sides.server, mine, tmp_path / "server's", *more) == 0

    for name in ("manifest.json", ADAPTER_FILE):
        ours, theirs = tmp_path / "device" / name, tmp_path / "server's" / name
        assert ours.read_bytes() == theirs.read_bytes()
    # Half of a person goes onto no bundle by itself.
    bundle = load_bundle(shared)
    with pytest.raises(BundleError, match="schema of device-0001's file must be"):
        load_personal_file(tmp_path / "made.zip").on(NextWordGraph(bundle.graph), bundle.manifest)


def test_a_part_that_was_made_for_somebody_else_or_another_round_is_refused(
    tmp_path: Path, both_sides: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    shared, mine = tmp_path / "shared.zip", tmp_path / "mine.published"
    target, authority = tmp_path / "own.zip", ["--authority", both_sides.authority]
    made = load_personal_file(tmp_path / "made.zip")

    assert personal(shared, mine, target, *authority) == 1
    told = capsys.readouterr().err
    assert "the coordinator makes blocks.0.attention.to_qkv.weight for device-0001: give" in told
    unsigned = tmp_path / "unsigned.zip"
    write_personal_file(unsigned, made.manifest, made.adapter)
    assert personal(shared, mine, target, "--generated", unsigned, *authority) == 1
    assert "manifest.sig must be in the bundle" in capsys.readouterr().err
    bundle = load_bundle(shared)
    part = decode_published(mine.read_bytes(), authority=read_authority(both_sides.authority))
    for changes in ({"client": "ben"}, {"round_number": 2}, {"run": "f" * 32}):
        other = replace(made, manifest=msgspec.structs.replace(made.manifest, **changes))
        what = next(iter(changes)).removesuffix("_number")
        with pytest.raises(BundleError, match=f"{what} of the generated part must be"):
            export_own(bundle, part, target, generated=other)
    assert not target.exists()


def test_a_gru_is_put_into_the_order_of_its_graph_without_onnx() -> None:
    tensors = named_tensors(schema_of(UNTIED), random_parameters(UNTIED))

    ours = personal_inputs(UNTIED, tensors)

    held = {one.name: to_array(one) for one in GruGraph(UNTIED).build(tensors).graph.initializer}
    theirs = {f"personal.{name}": held[name] for name in as_weights(tensors)}
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        assert_array_equal(ours[name], tensor)
    # torch stacks reset, update, new; the operator wants update first.
    hidden = UNTIED.hidden_size
    update = tensors["gru.weight_ih_l0"][hidden : 2 * hidden]
    assert_array_equal(ours["personal.gru.W"][0, :hidden], update)


def test_a_whole_model_that_the_device_keeps_becomes_its_persons_bundle(
    tmp_path: Path, make_home: MakeHome, vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    # Everyone's graph takes nothing of a person: the device's own model takes its place.
    plan = plan_of(SETTINGS, vocabulary, personalisation=AdaptedSettings())
    home = make_home(plan, vocabulary)
    shared, mine = tmp_path / "shared.zip", tmp_path / "mine.published"
    main(["keyboard", str(home.server), "--out", str(shared)])
    own = {name: tensor + np.float32(0.5) for name, tensor in home.tensors.items()}
    record = PublishedRecord(
        run=plan.run, client=DEVICE, method="adapted", schema_sha256=plan.schema_sha256
    )
    mine.write_bytes(encode_published(record, own, home.device))
    asked = ["--authority", home.authority]

    assert personal(shared, mine, tmp_path / "own.zip", "--whole", *asked) == 0
    assert personal(shared, mine, tmp_path / "part.zip", *asked) == 1

    checked = verify_bundle(tmp_path / "own.zip")  # Holds it against torch, too.
    expected = exporter_for(plan.model).build(own).SerializeToString(deterministic=True)
    assert checked.bundle.graph == expected
    assert checked.bundle.manifest.client == DEVICE
    assert "give --whole" in capsys.readouterr().err
    home.publish(tmp_path / "nothing.published")
    assert personal(shared, tmp_path / "nothing.published", tmp_path / "x", "--whole", *asked) == 1
    assert "must hold ['" in capsys.readouterr().err
