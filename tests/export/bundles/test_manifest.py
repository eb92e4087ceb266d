from typing import get_args

import msgspec
import pytest

from export.bundles.keyboard_bundle import Bundle
from export.bundles.manifest import Manifest, PrivacyStatement
from export.bundles.manifest_entries import BundleError
from models.settings.model import schema_of
from privacy.noise.settings import PrivacySettings

Json = dict[str, object]


def _spent(**changes: float) -> Json:
    return {"privacy": {"mode": "central", "guarantee": "a promise", **changes}}


@pytest.fixture
def fields(bundle: Bundle) -> Json:
    return msgspec.json.decode(bundle.manifest.encode(), type=Json)


def test_a_manifest_comes_back_as_it_was(bundle: Bundle) -> None:
    assert Manifest.decode(bundle.manifest.encode()) == bundle.manifest


def test_a_manifest_says_where_the_model_comes_from(fields: Json) -> None:
    assert fields["run"] == "0123456789abcdef0123456789abcdef"
    assert fields["round"] == 3
    assert fields["metrics"] == {"perplexity": 12.5}
    assert fields["privacy"] == {
        "mode": "none",
        "guarantee": "no privacy guarantee",
        "epsilon": None,
        "delta": None,
    }
    assert fields["languages"] == ["en"]
    assert fields["opset"] == 21


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"format_version": 4}, "must be 1 or 2 or 3, got 4; this sotto is older"),
        ({"format_version": 0}, "must be 1 or 2 or 3, got 0; the bundle is older"),
        ({"format_version": "1"}, r"\$.format_version"),
        ({"kind": "speech"}, r"\$.kind"),
        ({"round": 1.5}, r"\$.round"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"files": {}}, r"files must be \['model.onnx', 'vocabulary.txt'\], got \[\]"),
        ({"schema_sha256": "0" * 64}, "schema_sha256 must be"),
        ({"model": {"family": "gru_lm", "vocabulary_size": 20}}, "schema_sha256 must be"),
        ({"model": {"family": "mystery"}}, r"\$.model"),
        ({"rounded_from": "0" * 64}, "rounded_from belongs to a rounded model"),
        ({"precision": "int8"}, "rounded_from belongs to a rounded model, got precision int8"),
        ({"precision": "int4"}, r"\$.precision"),
        (_spent(epsilon=1.0), r"epsilon and delta belong together, got 1.0 and None.*\$.privacy"),
        (_spent(delta=1e-3), "epsilon and delta belong together, got None and 0.001"),
        (_spent(epsilon=-1.0, delta=1e-3), "epsilon must be >= 0 and finite, got -1.0"),
        (_spent(epsilon=1.0, delta=1.0), "delta must be > 0 and < 1, got 1.0"),
        (
            {"personal": {"method": "fedper", "tensors": ["output.weight"]}},
            r"personal tensors must be the model's, got \['output.weight'\]",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_place(
    fields: Json, changes: Json, rule: str
) -> None:
    with pytest.raises(BundleError, match=rule):
        Manifest.decode(msgspec.json.encode(fields | changes))


@pytest.mark.parametrize(
    ("version", "unknown"), [(1, ("personal", "client", "precision", "rounded_from")), (2, ())]
)
def test_a_manifest_of_a_version_before_is_still_read(
    fields: Json, bundle: Bundle, version: int, unknown: tuple[str, ...]
) -> None:
    for name in unknown:
        del fields[name]
    told = {"mode": "central", "guarantee": "(8, 0.001)-differential privacy"}

    found = Manifest.decode(
        msgspec.json.encode(fields | {"format_version": version, "privacy": told})
    )

    assert (found.format_version, found.personal, found.client) == (version, None, None)
    assert found.held_schema == schema_of(bundle.manifest.model)
    assert found.privacy.spent_after(3) == "not said"


def test_what_was_spent_is_said_of_modes_that_promise_something() -> None:
    spent = PrivacyStatement(mode="central", guarantee="a promise", epsilon=77.24, delta=0.001)

    assert spent.spent_after(1) == "epsilon 77.24 at delta 0.001, after round 1"
    for mode in get_args(PrivacySettings):
        said = PrivacyStatement(mode=mode.__struct_config__.tag, guarantee="").spent_after(1)
        assert said == ("not said" if mode.guarantees_privacy else "none promised")


def test_what_is_personal_is_not_looked_for_in_the_graph(fields: Json) -> None:
    # Of 385 weights 19 are the personal output.bias: 1,464 bytes are held.
    personal = {"method": "fedper", "tensors": ["output.bias"]}
    digest = {"sha256": "0" * 64, "size_bytes": 1464}
    files = {"model.onnx": digest, "vocabulary.txt": {"sha256": "0" * 64, "size_bytes": 10}}

    found = Manifest.decode(msgspec.json.encode(fields | {"files": files, "personal": personal}))

    assert list(found.personal_schema.slices) == ["output.bias"]
    assert found.held_schema.element_count == 366
    with pytest.raises(BundleError, match="must hold 1540 bytes of weights"):
        Manifest.decode(msgspec.json.encode(fields | {"files": files}))


@pytest.mark.parametrize("missing", ["run", "model", "privacy", "parity", "format_version"])
def test_a_missing_value_is_refused(fields: Json, missing: str) -> None:
    del fields[missing]

    with pytest.raises(BundleError, match=f"missing required field `{missing}`"):
        Manifest.decode(msgspec.json.encode(fields))


# The tiny model has 19 x 6 + 2 x 18 x 6 + 2 x 18 + 19 = 385 weights, 1,540 bytes.
@pytest.mark.parametrize("size_bytes", [-1, 0, 1539, 1540 + (1 << 20) + 1])
def test_a_graph_that_cannot_hold_just_the_weights_is_refused(
    fields: Json, size_bytes: int
) -> None:
    digest = {"sha256": "0" * 64, "size_bytes": size_bytes}
    vocabulary = {"sha256": "0" * 64, "size_bytes": 10}
    files = {"model.onnx": digest, "vocabulary.txt": vocabulary}

    with pytest.raises(BundleError, match="must hold 1540 bytes of weights"):
        Manifest.decode(msgspec.json.encode(fields | {"files": files}))


@pytest.mark.parametrize("encoded", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_what_is_no_manifest_is_refused(encoded: bytes) -> None:
    with pytest.raises(BundleError, match="manifest cannot be read"):
        Manifest.decode(encoded)
