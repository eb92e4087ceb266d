"""Both ends read a plan strictly, or not at all."""

from typing import Any

import msgspec
import pytest

from models.model_settings import GruLmSettings, TransformerLmSettings, schema_of
from models.plan import (
    Plan,
    PlanError,
    TrainingSettings,
    VocabularySettings,
    decode_plan,
)
from privacy.settings import NoNoise, PaperNoise

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
