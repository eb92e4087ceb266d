"""One job under a method that generates tensors for the device, or leaves some to it."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from edge_client.child.work import do_job
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Trained
from edge_client.personalisation.state import PersonalState, read_state
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters, parameters_sha256
from models.networks.grown_layers import first_parameters
from models.networks.role_vectors import part_of
from models.plan.plan import download_schema, upload_schema
from models.plan.roles import assign_roles
from models.settings.growth import GrowthSettings
from models.settings.model import TransformerLmSettings, schema_of
from models.settings.personalisation import (
    FedTpSettings,
    PersonalisationSettings,
    VanillaSettings,
)
from models.vector.base_digest import base_digest
from models.vector.codec import FlatVector, decode, encode, payload_size
from models.vector.schema import Role, Schema
from privacy.identities.party import Identity
from privacy.sealing.envelope import Direction, MessageContext, open_sealed, seal
from tests.edge_client.job_scene import (
    NONCE,
    PARAMETERS,
    SCHEMA,
    SENTENCES,
    Enrolled,
    Scene,
    enrol_device,
    examples,
)


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_device(tmp_path_factory.mktemp("enrolled"))


PERSONAL_MODEL = TransformerLmSettings(
    vocabulary_size=20, model_size=4, head_count=1, layer_count=1, feedforward_size=4
)


class PersonalScene(Scene):
    """Hold a job whose method keeps or generates attention's projections."""

    def __init__(
        self, folder: Path, enrolled: Enrolled, personalisation: PersonalisationSettings
    ) -> None:
        self._personalisation = personalisation
        self._model = PERSONAL_MODEL
        super().__init__(folder, enrolled)

    def grow(self) -> None:
        """Go on with a round that starts with a second layer."""
        self._model = msgspec.structs.replace(PERSONAL_MODEL, layer_count=2)
        self.plan = msgspec.structs.replace(self.plan, model=self._model)
        growth = GrowthSettings(target_layer_count=2, stage_count=2, round_count=2)
        self.plan = msgspec.structs.replace(self.plan, growth=growth, growth_stage=2)
        self.seal_model()

    def seal_model(self, base: bytes = bytes(32)) -> None:
        """Seal everyone's part to the device and, where there is one, its own."""
        whole = schema_of(self._model)
        roles = assign_roles(self._personalisation, whole)
        self.plan = msgspec.structs.replace(
            self.plan,
            model=self._model,
            personalisation=self._personalisation,
            schema_sha256=roles.sha256.hex(),
        )
        self.received = download_schema(self.plan)
        self.parameters = part_of(initial_parameters(self._model, 11), whole, self.received)
        self.generated = self.model.with_name("generated.sealed")
        shared = roles.with_roles(Role.SHARED)
        self.seal(self.model, shared, self.context_of(shared))
        generated = roles.with_roles(Role.GENERATED)
        if generated.tensors:
            self.seal(self.generated, generated, self.context_of(generated, own=True))

    def context_of(self, schema: Schema, *, own: bool = False) -> MessageContext:
        lease = {"slot": 2, "lease_nonce": NONCE} if own else {}
        context = replace(self.context(Direction.DOWNLINK), schema_sha256=schema.sha256)
        return replace(context, **lease)  # type: ignore[arg-type]  # one field each

    def seal(self, path: Path, schema: Schema, context: MessageContext) -> None:
        values = part_of(self.parameters, self.received, schema)
        recipient = Identity.load(self.device / "identity").wrapping.certified
        payload = encode(schema, values.numpy())
        sealed = seal(payload, context, sender=self.coordinator, recipient=recipient)
        path.write_bytes(b"".join(map(bytes, sealed.views())))

    def sent(self) -> FlatVector:
        """Open the update as the coordinator does, which knows what the device started from."""
        base = bytes(32)
        generated = self.received.with_roles(Role.GENERATED)
        if generated.tensors:
            values = part_of(self.parameters, self.received, generated)
            base = base_digest(base, parameters_sha256(values))
        uploaded = upload_schema(self.plan)
        payload = open_sealed(
            [self.update.read_bytes()],
            replace(self.context(Direction.UPLINK, base), schema_sha256=uploaded.sha256),
            payload_bytes=payload_size(uploaded),
            recipient=self.coordinator,
            sender=Identity.load(self.device / "identity").signing.certified,
        )
        return decode(uploaded, payload)


@pytest.mark.slow
def test_what_was_generated_for_the_device_is_trained_with_the_shared_parameters(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    scene = PersonalScene(tmp_path, enrolled, FedTpSettings())

    outcome = do_job(scene.job(sealed_generated=str(scene.generated)))

    assert isinstance(outcome, Trained)
    expected = LocalTrainer(scene.plan).train(
        scene.parameters, examples(SENTENCES[:8]), round_number=1, client_name="device-0001"
    )
    assert np.array_equal(scene.sent(), expected.update.numpy())


@pytest.mark.slow
def test_a_personal_part_of_an_older_stage_is_grown_on_the_device(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    scene = PersonalScene(tmp_path, enrolled, VanillaSettings())
    personal = DeviceFolder(scene.device).personal
    first = do_job(scene.job())
    assert isinstance(first, Trained)
    personal.accept(first.message_id)
    kept = read_state(personal.current, LocalTrainer(scene.plan).layout)
    assert kept is not None

    scene.grow()
    second = do_job(scene.job())

    assert isinstance(second, Trained)
    # One more matrix of queries, keys and values: what the run's seed draws for the second layer.
    drawn = first_parameters(scene.plan)[
        schema_of(scene.plan.model).slices["blocks.1.attention.to_qkv.weight"]
    ]
    expected = LocalTrainer(scene.plan).train(
        scene.parameters,
        examples(SENTENCES[:8]),
        round_number=1,
        client_name="device-0001",
        personal=PersonalState(torch.cat([kept.personal, drawn]), {}),
    )
    assert np.array_equal(scene.sent(), expected.update.numpy())


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [{"slot": 1}, {"lease_nonce": bytes(16)}, {"round_number": 2}, {"base_sha256": b"b" * 32}],
    ids=lambda change: next(iter(change)),
)
def test_a_part_that_was_generated_for_anything_else_is_not_trained(
    tmp_path: Path, enrolled: Enrolled, change: dict[str, int | bytes]
) -> None:
    scene = PersonalScene(tmp_path, enrolled, FedTpSettings())
    generated = scene.received.with_roles(Role.GENERATED)
    other = replace(scene.context_of(generated, own=True), **change)  # type: ignore[arg-type]
    scene.seal(scene.generated, generated, other)

    assert scene.failure(sealed_generated=str(scene.generated)).code == "unseal_failed"


def test_neither_part_stands_for_the_other(tmp_path: Path, enrolled: Enrolled) -> None:
    scene = PersonalScene(tmp_path, enrolled, FedTpSettings())

    own, shared = str(scene.generated), str(scene.model)

    assert scene.failure(sealed_model=own, sealed_generated=own).code == "unseal_failed"
    assert scene.failure(sealed_model=shared, sealed_generated=shared).code == "unseal_failed"


def test_personal_tensors_stay_on_the_device_and_the_next_round_goes_on_from_them(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    scene = PersonalScene(tmp_path, enrolled, VanillaSettings())
    personal = DeviceFolder(scene.device).personal

    first = do_job(scene.job())
    assert isinstance(first, Trained)
    assert not personal.current.exists()
    personal.accept(first.message_id)
    second = do_job(scene.job())

    assert isinstance(second, Trained)
    trainer = LocalTrainer(scene.plan)
    kept = None
    for _ in range(2):
        expected = trainer.train(
            scene.parameters,
            examples(SENTENCES[:8]),
            round_number=1,
            client_name="device-0001",
            personal=kept,
        )
        kept = expected.personal
    assert np.array_equal(scene.sent(), expected.update.numpy())
    assert kept is not None
    waiting = read_state(personal.waiting(second.message_id), trainer.layout)
    assert waiting is not None
    assert torch.equal(waiting.personal, kept.personal)
    # What is personal is in no byte of the update's layout.
    assert "to_qkv" not in " ".join(upload_schema(scene.plan).slices)


def test_a_personal_model_of_another_model_is_refused_with_a_remedy(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    scene = PersonalScene(tmp_path, enrolled, VanillaSettings())
    personal = DeviceFolder(scene.device).personal
    personal.waiting(b"m" * 16).write_bytes(encode(SCHEMA, PARAMETERS.numpy()))
    personal.accept(b"m" * 16)

    failed = scene.failure()

    assert failed.code == "personal_state_unusable"
    assert "remove it to start over" in failed.reason
