import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.plan.roles import (
    assign_roles,
    check_local_epochs,
    check_task,
)
from models.settings.model import GruLmSettings, TransformerLmSettings, schema_of
from models.settings.personalisation import (
    DittoSettings,
    FedBnSettings,
    FedPerSettings,
    FedProxSettings,
    FedRepSettings,
    FedRodSettings,
    FedTpSettings,
    GlobalSettings,
    LocalSettings,
    NeighbourSettings,
    PersonalisationSettings,
    PFedGpSettings,
    PFedHnSettings,
    PFedMeSettings,
    VanillaSettings,
)
from models.settings.voice import TransformerTtsSettings
from models.vector.named_parts import MissingPartError
from models.vector.schema import Role, Schema, TensorSpec

TIED = schema_of(GruLmSettings(vocabulary_size=10, hidden_size=2))
UNTIED = schema_of(GruLmSettings(vocabulary_size=10, hidden_size=2, tied=False))
NETWORK = Schema(
    tuple(
        TensorSpec(name=name, shape=(2,), layer=name.rpartition(".")[0])
        for name in (
            "block.to_qkv.weight",
            "block.to_out.weight",
            "batch_norm1.weight",
            "batch_norm1.bias",
            "batch_norm1.running_mean",
            "batch_norm1.running_var",
            "batch_norm1.batch_count",
            "head.weight",
            "head.bias",
        )
    )
)
METHODS: list[PersonalisationSettings] = [
    GlobalSettings(),
    LocalSettings(),
    FedProxSettings(),
    FedPerSettings(),
    FedRepSettings(),
    FedBnSettings(),
    PFedMeSettings(),
    PFedGpSettings(),
    FedRodSettings(),
    VanillaSettings(),
    FedTpSettings(),
    FedTpSettings(head="personal"),
    FedTpSettings(head="balanced"),
    DittoSettings(),
]


def of_role(settings: PersonalisationSettings, role: Role, schema: Schema = NETWORK) -> list[str]:
    return [spec.name for spec in assign_roles(settings, schema).tensors if spec.role is role]


@pytest.mark.parametrize(
    "settings",
    [
        GlobalSettings(),
        FedProxSettings(),
        PFedMeSettings(),
        PFedGpSettings(),
        FedRodSettings(),
        DittoSettings(),
    ],
)
def test_a_method_without_roles_shares_every_tensor(settings: PersonalisationSettings) -> None:
    assert assign_roles(settings, NETWORK) == NETWORK


def test_each_method_keeps_its_part() -> None:
    head = ["head.weight", "head.bias"]
    norm = [f"batch_norm1.{entry}" for entry in ("weight", "bias", "running_mean", "running_var")]

    assert of_role(LocalSettings(), Role.PERSONAL) == list(NETWORK.slices)
    assert of_role(FedPerSettings(), Role.PERSONAL) == head
    assert of_role(FedRepSettings(), Role.PERSONAL) == head
    assert of_role(FedBnSettings(), Role.PERSONAL) == [*norm, "batch_norm1.batch_count"]
    assert of_role(VanillaSettings(), Role.PERSONAL) == ["block.to_qkv.weight"]
    assert of_role(FedTpSettings(), Role.GENERATED) == ["block.to_qkv.weight"]
    assert of_role(FedTpSettings(), Role.PERSONAL) == []
    assert of_role(FedTpSettings(head="personal"), Role.PERSONAL) == head
    assert of_role(PFedHnSettings(), Role.GENERATED, UNTIED) == list(UNTIED.slices)


@given(
    settings=st.sampled_from(METHODS),
    extra=st.lists(
        st.sampled_from(["embedding.weight", "a.to_q.weight", "norm.bias", "output.weight"]),
        unique=True,
    ),
)
def test_roles_partition_the_schema(settings: PersonalisationSettings, extra: list[str]) -> None:
    more = tuple(TensorSpec(name=name, shape=(3,), layer=name) for name in extra)
    schema = Schema((*NETWORK.tensors, *more))

    roles = assign_roles(settings, schema)

    parts = [roles.with_roles(role).tensors for role in Role]
    assert sum(map(len, parts)) == len(schema.tensors)
    assert {spec.name for part in parts for spec in part} == set(schema.slices)
    # Nothing but the role changes, and the order stays.
    shared = Schema(tuple(msgspec.structs.replace(t, role=Role.SHARED) for t in roles.tensors))
    assert shared == schema


@pytest.mark.parametrize(
    ("settings", "schema", "message"),
    [
        (FedBnSettings(), UNTIED, '"fedbn" needs a model with a batch norm'),
        (FedPerSettings(), TIED, '"fedper" needs .*set tied = false'),
        (FedRepSettings(), TIED, '"fedrep" needs .*set tied = false'),
        (FedRodSettings(), TIED, '"fedrod" needs .*set tied = false'),
        (FedTpSettings(head="balanced"), TIED, '"fedtp" needs'),
        (VanillaSettings(), UNTIED, '"vanilla" needs a model with a projection'),
        (FedTpSettings(), UNTIED, '"fedtp" needs a model with a projection'),
        (PFedHnSettings(), NETWORK, "running statistics, as those of batch_norm1"),
    ],
)
def test_a_model_without_the_methods_part_is_refused(
    settings: PersonalisationSettings, schema: Schema, message: str
) -> None:
    with pytest.raises(MissingPartError, match=message):
        assign_roles(settings, schema)


def test_a_transformer_for_words_can_have_its_projections_made() -> None:
    schema = schema_of(TransformerLmSettings(vocabulary_size=10, model_size=8, layer_count=2))

    assert of_role(FedTpSettings(), Role.GENERATED, schema) == [
        "blocks.0.attention.to_qkv.weight",
        "blocks.1.attention.to_qkv.weight",
    ]


def test_one_local_epoch_is_too_few_for_head_and_body() -> None:
    check_local_epochs(FedRepSettings(), 2)
    with pytest.raises(ValueError, match=r'local_epochs must be >= 2 with method "fedrep", got 1'):
        check_local_epochs(FedRepSettings(), 1)


def test_gaussian_processes_want_one_class_an_example() -> None:
    check_task(PFedGpSettings(), "image_classification")
    with pytest.raises(ValueError, match='needs task = "image_classification", got "next_word"'):
        check_task(PFedGpSettings(), "next_word")


def test_neighbours_want_features() -> None:
    with_neighbours = FedTpSettings(neighbours=NeighbourSettings())

    for task in ("next_word", "next_character", "image_classification"):
        check_task(with_neighbours, task)
    check_task(FedTpSettings(), "sequence")
    with pytest.raises(ValueError, match='neighbours must be absent with task = "sequence"'):
        check_task(with_neighbours, "sequence")


@pytest.mark.parametrize("settings", [FedRodSettings(), FedTpSettings(head="balanced")])
def test_balanced_softmax_is_for_few_classes(settings: PersonalisationSettings) -> None:
    check_task(settings, "next_character")
    check_task(settings, "image_classification")
    with pytest.raises(ValueError, match=r'balanced softmax needs task = .*, got "next_word"'):
        check_task(settings, "next_word")


@pytest.mark.parametrize("settings", [GlobalSettings(), VanillaSettings(), FedTpSettings()])
def test_who_speaks_is_the_clients_own_under_every_method(
    settings: PersonalisationSettings,
) -> None:
    voice = schema_of(TransformerTtsSettings(layer_count=1, speaker_size=4))

    roles = {spec.name: spec.role for spec in assign_roles(settings, voice).tensors}

    assert roles["speaker.vector"] is Role.PERSONAL
    assert roles["speaker.projection.weight"] is Role.SHARED
