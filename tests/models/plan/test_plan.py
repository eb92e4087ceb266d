"""Both ends read a plan strictly, or not at all."""

from typing import Any

import msgspec
import pytest

from models.plan.plan import (
    Plan,
    PlanError,
    TrainingSettings,
    VocabularySettings,
    decode_plan,
)
from models.settings.compression import CompressionSettings
from models.settings.hypernetwork import HypernetworkSettings
from models.settings.model import GruLmSettings, TransformerLmSettings, schema_of
from models.settings.personalisation import FedTpSettings
from models.settings.weighing import EqualWeights
from privacy.noise.evaluation_settings import EvaluationNoise
from privacy.noise.settings import NoNoise, PaperNoise
from tests.masked_scene import masked_plan

MODEL = GruLmSettings(vocabulary_size=5, hidden_size=2)
PLAN = Plan(
    run="00" * 16,
    model=MODEL,
    schema_sha256=schema_of(MODEL).sha256.hex(),
    vocabulary=VocabularySettings(name="test", size=5, sha256="00" * 32),
    training=TrainingSettings(learning_rate=1.0, batch_size=1, bptt_steps=1),
    privacy=PaperNoise(clipping_norm=1.0, randomisation_magnitude=0.1),
    cohort_size=10,
    seed=1,
)
NOISE = EvaluationNoise(noise_multiplier=2.0, token_cap=100, loss_cap=9.0)


def changed(path: str, value: object) -> bytes:
    """Return the plan with one field replaced, or removed by None."""
    fields: dict[str, Any] = msgspec.json.decode(PLAN.encode())
    *parents, last = path.split(".")
    inner = fields
    for parent in parents:
        inner = inner[parent]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return msgspec.json.encode(fields)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"privacy": NoNoise()},
        {"kind": "evaluate"},
        {"kind": "evaluate", "evaluation_noise": NOISE},
        {"model": TransformerLmSettings(vocabulary_size=5)},
    ],
)
def test_a_plan_arrives_as_it_was_sent(change: dict[str, Any]) -> None:
    plan = msgspec.structs.replace(PLAN, **change)

    assert decode_plan(plan.encode()) == plan
    assert decode_plan(plan.encode()).encode() == plan.encode()


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (b"", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[]", "cannot be read"),
        (changed("version", 2), "this device is older: update it"),
        (changed("version", 0), "the coordinator is older: update it"),
        (changed("version", None), "`version`"),
        (changed("privacy", None), "`privacy`"),
        (changed("privacy.mode", "secret"), r"'secret' - at `\$\.privacy"),
        (changed("training.batch_size", 1.5), r"got `float` - at `\$\.training\.batch_size`"),
        (changed("training.learning_rate", -1.0), "learning_rate must be > 0"),
        (changed("training.momentum", 1.0), r"momentum must be in \[0, 1\)"),
        (changed("training.weight_decay", -1.0), "weight_decay must be >= 0"),
        (changed("training.gradient_clipping_norm", 0.0), "gradient_clipping_norm must be > 0"),
        (changed("training.local_epochs", 0), "local_epochs must be >= 1"),
        (changed("model.family", "lstm"), r"'lstm' - at `\$\.model"),
        (changed("model.hiden_size", 3), "unknown field `hiden_size`"),
        (changed("kind", "spy"), r"'spy' - at `\$\.kind`"),
        (changed("more", 1), "unknown field `more`"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(encoded: bytes, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decode_plan(encoded)


EXAMPLE_PRIVACY = {
    "clipping_norm": 0.5,
    "noise_multiplier": 1.0,
    "sampling_rate": 0.1,
    "delta": 1e-5,
}


def private(path: str, value: object) -> bytes:
    """Return a plan with example privacy and one field replaced."""
    fields: dict[str, Any] = msgspec.json.decode(PLAN.encode())
    fields["training"]["example_privacy"] = dict(EXAMPLE_PRIVACY)
    *parents, last = path.split(".")
    inner = fields
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    return msgspec.json.encode(fields)


def test_example_privacy_arrives_as_it_was_sent() -> None:
    plan = decode_plan(private("training.example_privacy.clipping_norm", 2))

    assert plan.training.example_privacy is not None
    assert plan.training.example_privacy.clipping_norm == 2.0
    assert decode_plan(plan.encode()) == plan


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (private("training.example_privacy.noise_multiplier", 0.0), "noise_multiplier must be > 0"),
        (private("training.example_privacy.sampling_rate", 1.5), "sampling_rate must be in"),
        (private("training.example_privacy.delta", 0.0), "delta must be above 0"),
        (private("training.example_privacy", {}), "missing required field `clipping_norm`"),
        (private("training.example_privacy.epsilon", 1.0), "unknown field `epsilon`"),
        (private("training.precision", "bfloat16"), "precision must be float32"),
        (private("training.gradient_clipping_norm", 1.0), "gradient_clipping_norm must be absent"),
        (private("model.dropout", 0.1), "model.dropout must be 0"),
        (private("task", "translate"), 'task must be "next_word"'),
        (private("personalisation.method", "fedprox"), 'personalisation.method must be "global"'),
    ],
)
def test_example_privacy_that_bounds_nothing_is_refused(encoded: bytes, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decode_plan(encoded)


@pytest.mark.parametrize(
    ("kind", "fit"),
    [
        ("train", {"epochs": 1}),
        ("fit_embedding", None),
        ("fit_personal", None),
        ("evaluate", {}),
    ],
)
def test_a_plan_says_how_to_fit_exactly_where_something_is_fitted(
    kind: str, fit: dict[str, int] | None
) -> None:
    fields: dict[str, Any] = msgspec.json.decode(PLAN.encode())

    with pytest.raises(PlanError, match="embedding_fit belongs to kinds fit_embedding and"):
        decode_plan(msgspec.json.encode(fields | {"kind": kind, "embedding_fit": fit}))


def test_noise_of_counts_belongs_to_an_evaluation() -> None:
    with pytest.raises(ValueError, match='evaluation_noise belongs to kind "evaluate"'):
        msgspec.structs.replace(PLAN, evaluation_noise=NOISE)


@pytest.mark.parametrize("path", ["schema_sha256", "vocabulary.sha256", "run"])
@pytest.mark.parametrize(
    "digest", ["", "/home/me/diary", "../../../notes", "AB" * 32, "0" * 63, "0" * 65, "g" * 64]
)
def test_a_digest_is_lower_case_hex_of_its_length_and_nothing_else(path: str, digest: str) -> None:
    with pytest.raises(PlanError, match=r"must be (64|32) lower-case hex digits"):
        decode_plan(changed(path, digest))


def test_a_masked_plan_says_how_devices_weigh_and_no_other_does() -> None:
    for plan, weighing in ((PLAN, EqualWeights()), (masked_plan(), msgspec.UNSET)):
        with pytest.raises(ValueError, match="weighing belongs to privacy"):
            msgspec.structs.replace(plan, weighing=weighing)


def test_a_masked_plan_arrives_as_it_was_sent() -> None:
    assert decode_plan(masked_plan().encode()) == masked_plan()


def test_a_plan_of_another_mode_is_written_as_before_there_were_masks() -> None:
    assert b"weighing" not in PLAN.encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compression": CompressionSettings(uplink="int8")}, "compression may say no more"),
        (
            {"personalisation": FedTpSettings(hypernetwork=HypernetworkSettings())},
            "teaches its hypernetwork",
        ),
    ],
)
def test_a_masked_plan_that_cannot_be_followed_is_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(masked_plan(), **change)
