from models.personalisation import assign_roles
from models.personalisation_settings import FedTpSettings, GlobalSettings, PersonalisationSettings
from models.schema import Schema, TensorSpec
from models.travel import describe_travel

SCHEMA = Schema(
    (
        TensorSpec(name="embedding.weight", shape=(500, 100), layer="embedding"),
        TensorSpec(name="blocks.0.to_qkv.weight", shape=(6, 2), layer="blocks.0.to_qkv"),
        TensorSpec(name="output.weight", shape=(5,), layer="output"),
    )
)


def described(settings: PersonalisationSettings) -> str:
    return describe_travel(settings, assign_roles(settings, SCHEMA))


def test_one_model_for_everyone_is_one_part() -> None:
    # 50,000 + 12 + 5 numbers of four bytes.
    assert described(GlobalSettings()) == ("method global: 50,017 parameters of everyone (0.2 MB)")


def test_each_role_is_named_with_its_size() -> None:
    assert described(FedTpSettings(head="personal")) == (
        "method fedtp: 50,000 parameters of everyone (0.2 MB), "
        "12 generated for each device and sealed for it alone (48 bytes), "
        "5 that never leave the device (20 bytes)"
    )
