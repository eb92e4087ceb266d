"""One client's model from a release: what everyone shares in one place, its own in the other."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from export.faces.family import ExportError
from export.releases.client_model import client_parameters
from export.releases.release import Release, read_release
from models.plan.plan import Plan, download_schema, plan_schema, released_schema
from models.plan.release_record import ReleaseError
from models.settings.hypernetwork import HypernetworkSettings
from models.settings.model import TransformerLmSettings
from models.settings.personalisation import (
    DittoSettings,
    FedPerSettings,
    FedProxSettings,
    FedTpSettings,
    GlobalSettings,
    LocalSettings,
    NeighbourSettings,
    PersonalisationSettings,
    PFedHnSettings,
    PFedMeSettings,
    VanillaSettings,
)
from models.text.vocabulary import Vocabulary
from models.vector.schema import Role
from models.vector.tensor_file import decode_tensors, encode_tensors
from server.personalisation.hypernetwork import HypernetworkHalf
from server.personalisation.registry import build_server_half
from server.personalisation.round_terms import RoundTerms
from server.releases.files import NewRelease, ReleaseFolder
from tests.export.conftest import WORDS, plan_of

TINY = HypernetworkSettings(embedding_size=3, hidden_size=4, basis_size=2, learning_rate=0.5)
FEDTP = FedTpSettings(hypernetwork=TINY)
SETTINGS = TransformerLmSettings(
    vocabulary_size=len(WORDS),
    model_size=4,
    head_count=2,
    layer_count=2,
    feedforward_size=8,
    context_size=8,
    tied=False,
)


KEPT = "keeps a part of each client's model on its device"


@pytest.fixture
def plan(vocabulary: Vocabulary) -> Plan:
    return plan_of(SETTINGS, vocabulary, personalisation=FEDTP)


@pytest.fixture
def half(plan: Plan) -> HypernetworkHalf:
    """Return a server half that learnt one round of ada's and ben's."""
    half = build_server_half(
        plan.personalisation, download_schema(plan), model=SETTINGS, run_seed=plan.seed
    )
    assert isinstance(half, HypernetworkHalf)
    count = plan_schema(plan).with_roles(Role.GENERATED).element_count
    half.begin(RoundTerms(slot_count=2, weighting="examples"))
    for number, name in enumerate(("ada", "ben"), start=1):
        half.take(name, torch.randn(count, generator=torch.Generator().manual_seed(number)), 10)
    half.close()
    return half


def released(folder: Path, plan: Plan, vocabulary: Vocabulary, state: bytes | None) -> Release:
    shared = np.arange(released_schema(plan).element_count, dtype=np.float32)
    releases = ReleaseFolder(folder / "releases")
    new = NewRelease(
        round_number=1,
        attempt=0,
        plan=plan,
        vocabulary=vocabulary,
        parameters=shared,
        previous_sha256=bytes(32),
        metrics={},
        guarantee="no privacy guarantee",
        personalisation=state,
    )
    releases.build(new, None)
    return read_release(releases.publish(1))


def file_of(half: HypernetworkHalf, *, without: str = "") -> bytes:
    state = {name: tensor.numpy() for name, tensor in half.state().items()}
    state.pop(without, None)
    return bytes(encode_tensors(state))


def test_everything_shared_and_what_was_generated_lie_in_their_places(
    tmp_path: Path, plan: Plan, vocabulary: Vocabulary, half: HypernetworkHalf
) -> None:
    release = released(tmp_path, plan, vocabulary, file_of(half))

    models = {name: client_parameters(release, name) for name in ("ada", "ben")}

    schema = plan_schema(plan)
    generated = schema.with_roles(Role.GENERATED)
    # Both blocks' projections, and nothing else.
    assert list(generated.slices) == [f"blocks.{k}.attention.to_qkv.weight" for k in (0, 1)]
    for name, model in models.items():
        taken = np.concatenate([model[schema.slices[of]] for of in generated.slices])
        np.testing.assert_array_equal(taken, half.parameters_for(name).numpy())
        shared = np.concatenate([model[schema.slices[of]] for of in released_schema(plan).slices])
        np.testing.assert_array_equal(shared, np.arange(len(shared)))
        assert len(taken) + len(shared) == len(model) == schema.element_count
    assert not np.array_equal(models["ada"], models["ben"])


def test_a_model_that_is_generated_whole_is_a_clients_too(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    plan = plan_of(SETTINGS, vocabulary, personalisation=PFedHnSettings(hypernetwork=TINY))
    half = build_server_half(
        plan.personalisation, download_schema(plan), model=SETTINGS, run_seed=plan.seed
    )
    assert isinstance(half, HypernetworkHalf)
    half.begin(RoundTerms(slot_count=1, weighting="equal"))
    half.take("ada", torch.ones(plan_schema(plan).element_count), 1)
    half.close()
    release = released(tmp_path, plan, vocabulary, file_of(half))

    model = client_parameters(release, "ada")

    assert release.parameters.shape == (0,)
    np.testing.assert_array_equal(model, half.parameters_for("ada").numpy())


@pytest.mark.parametrize("lost", ["", "client/ada"], ids=["unknown", "lost row"])
def test_a_client_without_a_row_gets_nobody_elses_model(
    tmp_path: Path, plan: Plan, vocabulary: Vocabulary, half: HypernetworkHalf, lost: str
) -> None:
    release = released(tmp_path, plan, vocabulary, file_of(half, without=lost))
    name = "ada" if lost else "eve"

    with pytest.raises(ExportError, match=f'known of client "{name}".* its row was lost: restore'):
        client_parameters(release, name)
    assert client_parameters(release, "ben").shape == (plan_schema(plan).element_count,)


def test_a_release_without_the_state_is_refused(
    tmp_path: Path, plan: Plan, vocabulary: Vocabulary
) -> None:
    release = released(tmp_path, plan, vocabulary, None)

    with pytest.raises(ExportError, match="must hold what makes a client's tensors"):
        client_parameters(release, "ada")


def test_the_state_of_another_model_is_refused(
    tmp_path: Path, plan: Plan, vocabulary: Vocabulary, half: HypernetworkHalf
) -> None:
    grown = plan_of(
        msgspec.structs.replace(SETTINGS, layer_count=3), vocabulary, personalisation=FEDTP
    )
    release = released(tmp_path, grown, vocabulary, file_of(half))

    with pytest.raises(ExportError, match="belongs to another model or another hypernetwork"):
        client_parameters(release, "ada")


def test_a_changed_state_is_no_release(
    tmp_path: Path, plan: Plan, vocabulary: Vocabulary, half: HypernetworkHalf
) -> None:
    released(tmp_path, plan, vocabulary, file_of(half))
    folder = tmp_path / "releases" / "000001"
    path = folder / "personalisation.safetensors"
    arrays = {name: np.array(array) for name, array in decode_tensors(path.read_bytes())[0].items()}
    arrays["client/ben"] = arrays["client/ada"]
    path.write_bytes(encode_tensors(arrays))

    with pytest.raises(ReleaseError, match=r"personalisation.safetensors is not the file"):
        read_release(folder)


@pytest.mark.parametrize(
    ("method", "refusal"),
    [
        (VanillaSettings(), KEPT),
        (FedPerSettings(), KEPT),
        (LocalSettings(), KEPT),
        (DittoSettings(), KEPT),
        (PFedMeSettings(), KEPT),
        (
            FedTpSettings(hypernetwork=TINY, head="personal"),
            KEPT,
        ),
        (
            FedTpSettings(hypernetwork=TINY, neighbours=NeighbourSettings()),
            KEPT,
        ),
        (GlobalSettings(), "one model for everyone; export it without a client"),
        (FedProxSettings(), "one model for everyone; export it without a client"),
    ],
)
def test_a_model_that_the_coordinator_does_not_know_whole_is_refused(
    tmp_path: Path, vocabulary: Vocabulary, method: PersonalisationSettings, refusal: str
) -> None:
    plan = plan_of(SETTINGS, vocabulary, personalisation=method)
    release = released(tmp_path, plan, vocabulary, None)

    with pytest.raises(ExportError, match=refusal):
        client_parameters(release, "ada")
