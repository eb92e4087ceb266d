from models.plan.roles import assign_roles
from models.plan.travel import describe_travel
from models.settings.compression import CompressionSettings
from models.settings.personalisation import FedTpSettings, GlobalSettings, PersonalisationSettings
from models.vector.schema import Schema, TensorSpec

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


def test_how_updates_travel_is_told_where_it_is_not_as_they_are() -> None:
    squeezed = CompressionSettings(uplink="int8", block_size=1024, entropy="zstd")
    fed_back = CompressionSettings(uplink="int4", error_feedback=True)
    part = CompressionSettings(uplink="none", keep="top", keep_fraction=0.05, error_feedback=True)
    halved = CompressionSettings(uplink="bfloat16")

    told = [
        describe_travel(GlobalSettings(), SCHEMA, settings).partition("; ")[2]
        for settings in (squeezed, fed_back, part, halved, None)
    ]

    assert told == [
        "updates as int8 in blocks of 1,024, squeezed by zstd",
        "updates as int4 in blocks of 256, what is lost fed back",
        "updates as float32, the largest 5 %, what is lost fed back",
        "updates as bfloat16",
        "",
    ]
