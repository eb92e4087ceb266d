"""Read mutated plans as a device does, and print what the worst of them cost.

``python -m tests.models.plan.mutated_plans``: a process of its own, so that its memory is theirs.
"""

import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from models.plan.plan import (
    Plan,
    PlanError,
    TrainingSettings,
    VocabularySettings,
    decode_plan,
    plan_schema,
    upload_schema,
)
from models.settings.character import CharLstmSettings, CharTransformerSettings
from models.settings.compression import CompressionSettings
from models.settings.growth import GrowthSettings
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.model import GruLmSettings, ModelSettings, TransformerLmSettings
from models.settings.personalisation import FedTpSettings, GlobalSettings, PFedGpSettings
from models.settings.seq2seq import Seq2SeqSettings
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.settings import NoNoise

# Numbers as they stand in JSON: some fit no machine word, and one no float.
_HOSTILE = (
    *("0", "-1", "127", "65536", "2147483648", "1000000000", "9223372036854775807"),
    *("18446744073709551616", "9" * 400, "9" * 5000, "1e308", "1e-320", "1e999", "-1e18"),
)
_PLACE = "@here@"
_BYTES = (b"", b"{", b"\xff" * 60_000, b"[" * 60_000, b'{"x":' * 12_000, b'{"version":1}', b" ")


def _plan(model: ModelSettings, task: str, **changes: Any) -> Plan:
    words = getattr(model, "vocabulary_size", None)
    fields: dict[str, Any] = {
        "run": "00" * 16,
        "task": task,
        "model": model,
        "schema_sha256": "00" * 32,
        "vocabulary": words and VocabularySettings(name="test", size=words, sha256="00" * 32),
        "training": TrainingSettings(learning_rate=1.0, batch_size=2),
        "privacy": NoNoise(),
        "cohort_size": 3,
        "quorum": 2,
        "seed": 1,
    }
    return Plan(**{**fields, **changes})


def honest_plans() -> Iterator[Plan]:
    """Yield a plan of every family, and of every setting that multiplies."""
    fit = EmbeddingFitSettings()
    image = {"task": "image_classification"}
    yield _plan(GruLmSettings(vocabulary_size=20), "next_word")
    lm = TransformerLmSettings(vocabulary_size=20)
    yield _plan(
        lm,
        "next_word",
        growth=GrowthSettings(target_layer_count=2, stage_count=2, round_count=4),
        growth_stage=2,
        compression=CompressionSettings(uplink="int8"),
    )
    yield _plan(lm, "next_word", compression=CompressionSettings(uplink="none", layer_groups=2))
    frozen = TrainingSettings(learning_rate=1.0, batch_size=2, frozen=("embedding", "norm.weight"))
    yield _plan(lm, "next_word", training=frozen)
    tree = TreeNoise(
        clipping_norm=1.0,
        noise_multiplier=1.0,
        delta=1e-6,
        epsilon_budget=8.0,
        adjacency="zero-out",
        min_separation=2,
        max_participation=3,
        restart_rounds=8,
    )
    private = ExamplePrivacySettings(
        clipping_norm=1.0, noise_multiplier=1.0, sampling_rate=0.1, delta=1e-6
    )
    hides = TrainingSettings(learning_rate=1.0, batch_size=2, example_privacy=private)
    yield _plan(GruLmSettings(vocabulary_size=20), "next_word", privacy=tree, training=hides)
    buffers = msgspec.structs.replace(
        tree,
        restart_rounds=None,
        mechanism="blt",
        buffer_decays=(0.9, 0.5),
        buffer_scales=(0.2, 0.25),
    )
    yield _plan(GruLmSettings(vocabulary_size=20), "next_word", privacy=buffers)
    vit = VitSettings(class_count=10)
    yield _plan(
        vit, **image, personalisation=FedTpSettings(), kind="fit_embedding", embedding_fit=fit
    )
    yield _plan(ConvNetSettings(class_count=10), **image, personalisation=PFedGpSettings())
    yield _plan(CharLstmSettings(), "next_character")
    yield _plan(CharTransformerSettings(), "next_character")
    yield _plan(Seq2SeqSettings(symbol_count=10), "sequence")
    yield _plan(TransformerTtsSettings(speaker_size=4), "speech", personalisation=GlobalSettings())
    yield _plan(VocoderSettings(), "vocoder")


def mutants() -> Iterator[bytes]:
    """Yield each plan with each number replaced, alone and all numbers of one name together."""
    yield from _BYTES
    for plan in honest_plans():
        tree = json.loads(plan.encode())
        for holder, key in list(_numbers(tree)):
            before, holder[key] = holder[key], _PLACE
            text = json.dumps(tree)
            holder[key] = before
            yield from (text.replace(f'"{_PLACE}"', value).encode() for value in _HOSTILE)
        for value in ("100", "65536", "1000000000"):
            yield _with_layers(json.loads(plan.encode()), value)


def _with_layers(tree: Any, value: str) -> bytes:
    """Return a plan with all its numbers of layers and stages alike."""
    for holder, key in list(_numbers(tree)):
        if (
            str(key).endswith(("layer_count", "block_count", "stage_count"))
            or key == "growth_stage"
        ):
            holder[key] = int(value)
    return json.dumps(tree).encode()


def _numbers(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = enumerate(tree) if isinstance(tree, list) else tree.items()
    for key, value in items:
        if isinstance(value, dict | list):
            yield from _numbers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield tree, key


def main() -> None:
    """Read all of them; any error but PlanError ends this with a traceback."""
    for plan in honest_plans():
        decode_plan(plan.encode())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = refused = 0
    slowest_s = 0.0
    for encoded in mutants():
        started = time.process_time()
        try:
            plan = decode_plan(encoded)
            _ = plan_schema(plan).sha256, upload_schema(plan).element_count, plan.encode()
        except PlanError:
            refused += 1
        read += 1
        slowest_s = max(slowest_s, time.process_time() - started)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(
        json.dumps(
            {"read": read, "refused": refused, "slowest_s": slowest_s, "grown_mb": grown_kib / 1024}
        )
    )


if __name__ == "__main__":
    main()
