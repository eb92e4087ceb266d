import pytest

from models.model_settings import GruLmSettings, schema_of
from models.personalisation import METHODS, assign_roles, travelling_schema
from models.plan import PersonalisationSettings
from models.schema import Role, Schema, TensorSpec

SCHEMA = schema_of(GruLmSettings(vocabulary_size=10, hidden_size=2))


def test_the_global_method_shares_every_tensor() -> None:
    settings = PersonalisationSettings(method="global")

    assert assign_roles(settings, SCHEMA) == SCHEMA
    assert travelling_schema(settings, SCHEMA) == SCHEMA


def test_a_registered_method_decides_what_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    def personal_output(schema: Schema) -> Schema:
        return Schema(
            tuple(
                TensorSpec(name=t.name, shape=t.shape, layer=t.layer, role=Role.PERSONAL)
                if t.layer == "output"
                else t
                for t in schema.tensors
            )
        )

    monkeypatch.setitem(METHODS, "own-output", personal_output)

    travelling = travelling_schema(PersonalisationSettings(method="own-output"), SCHEMA)

    assert [t.name for t in travelling.tensors] == [t.name for t in SCHEMA.tensors[:-1]]


def test_an_unknown_method_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"one of .*global.*, got 'ditto'"):
        assign_roles(PersonalisationSettings(method="ditto"), SCHEMA)
