"""Readers of models: plans, releases, parameters, updates and published parts."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from models.compression.entropy import squeeze, unsqueeze
from models.compression.release_delta import decode_delta, encode_delta
from models.compression.update_format import update_format
from models.masked.layout import masked_layout
from models.masked.payload import encode_payload, split_payload
from models.plan.plan import Plan, PlanError, decode_plan, plan_schema, upload_schema
from models.plan.published_part import (
    PublishedPartError,
    PublishedRecord,
    decode_published,
    encode_published,
)
from models.plan.release_record import ReleaseError, ReleaseRecord, decode_release_record
from models.plan.signed_plan import SignedPlan, SignedPlanError, sign_plan
from models.settings.compression import CompressionSettings
from models.settings.model import schema_of
from models.settings.weighing import EqualWeights
from models.text.vocabulary import Vocabulary, VocabularyError, decode_vocabulary
from models.vector.archives import ArraysError, read_arrays
from models.vector.codec import CodecError, decode, encode
from models.vector.tensor_file import TensorFileError, decode_tensors, encode_tensors
from privacy.masking.keystream import SEED_BYTES
from privacy.noise.masked_settings import MaskedNoise
from privacy.sealing.envelope import sealed_bytes
from tests.edge_client.training_plan import MODEL, make_plan
from tests.fuzz.parties import RUN, parties
from tests.fuzz.saved import saved_arrays
from tests.fuzz.target import Prepared, Target, of_bytes, of_file
from tests.models.plan.mutated_plans import honest_plans

_SCHEMA = schema_of(MODEL)
_UPDATE = np.random.default_rng(1).standard_normal(_SCHEMA.element_count).astype(np.float32)
_NAMED = {"b": np.arange(3, dtype=np.float32), "c": np.ones((2, 2), np.float32)}
_COMPRESSIONS = {
    "int8": CompressionSettings(uplink="int8"),
    "int4": CompressionSettings(uplink="int4", entropy="zstd"),
    "sparse": CompressionSettings(
        uplink="int8", keep="top", keep_fraction=0.1, error_feedback=True
    ),
    "bfloat16": CompressionSettings(uplink="bfloat16"),
    "groups": CompressionSettings(uplink="none", layer_groups=2),
}


def targets() -> Iterator[Target]:
    """Yield this package's targets."""
    yield from _plans()
    yield Target("models/published-part", (PublishedPartError,), _published)
    tensors = bytes(encode_tensors(_NAMED, {"made": "here"}))
    yield Target("models/tensor-file", (TensorFileError,), of_bytes(decode_tensors, tensors))
    arrays = saved_arrays(**_NAMED)
    yield Target("models/arrays", (ArraysError,), of_file(read_arrays, arrays), ("npz", "zip"))
    words = Vocabulary(("<unk>", "<eos>", "the", "café")).to_bytes()
    yield Target(
        "models/word-list", (VocabularyError,), of_bytes(decode_vocabulary, words), ("text",)
    )
    parameters = bytes(encode(_SCHEMA, _UPDATE))
    yield Target(
        "models/parameters",
        (CodecError,),
        of_bytes(lambda content: decode(_SCHEMA, content), parameters),
    )
    yield from _updates()


def _plans() -> Iterator[Target]:
    plans = [plan.encode() for plan in honest_plans()]
    plans += [make_plan().encode(), _masked_plan().encode()]
    yield Target("models/plan", (PlanError,), of_bytes(_plan, *plans), ("json", "plan"))
    yield Target("models/signed-plan", (SignedPlanError,), _signed_plans, ("json",))
    record = ReleaseRecord(
        run=RUN,
        round=3,
        parameters_sha256="00" * 32,
        schema_sha256="00" * 32,
        previous_sha256="00" * 32,
        metrics={"perplexity": 12.5},
        guarantee="no privacy guarantee",
    )
    yield Target(
        "models/release-record",
        (ReleaseError,),
        of_bytes(decode_release_record, record.encode()),
        ("json",),
    )


def _updates() -> Iterator[Target]:
    for name, settings in _COMPRESSIONS.items():
        form = update_format(msgspec.structs.replace(make_plan(), compression=settings), 1)
        payload = bytes(form.encode(_UPDATE, seed=1))
        yield Target(f"models/update-{name}", (CodecError,), of_bytes(form.decode, payload))
    layout = masked_layout(_masked_plan())
    sealed = bytes(sealed_bytes(SEED_BYTES))
    masked = bytes(encode_payload(layout, bytes(layout.packed_bytes), sealed))
    yield Target(
        "models/update-masked",
        (CodecError,),
        of_bytes(lambda content: split_payload(layout, content), masked),
    )
    moved = [encode_delta(_SCHEMA, None, _UPDATE, step) for step in (None, 2.0**-10)]
    yield Target(
        "models/release-delta",
        (CodecError,),
        of_bytes(lambda content: decode_delta(_SCHEMA, None, content, 2.0**-10), *moved),
    )
    coded = bytes(1000)
    frame = squeeze(memoryview(coded), 0)
    yield Target(
        "models/entropy-frame",
        (CodecError,),
        of_bytes(lambda content: unsqueeze(memoryview(content), len(coded), 0), frame),
    )


def _masked_plan() -> Plan:
    privacy = MaskedNoise(
        clipping_norm=1.0,
        noise_multiplier=1.0,
        delta=1e-5,
        epsilon_budget=8.0,
        coordinator_epsilon_budget=8.0,
        adjacency="zero-out",
        honest_share=1.0,
    )
    return msgspec.structs.replace(
        make_plan(), privacy=privacy, weighing=EqualWeights(), cohort_size=2, quorum=2
    )


def _plan(content: bytes) -> None:
    plan = decode_plan(content)
    # A device builds these next, of whatever plan it could read.
    plan_schema(plan)
    upload_schema(plan)
    if isinstance(plan.privacy, MaskedNoise):
        # Its refusal of a grid that no width holds is that of a plan that cannot be used.
        with suppress(ValueError):
            masked_layout(plan)


def _signed_plans(_folder: Path) -> Prepared:
    known = parties()
    plan = make_plan().encode()
    signed = SignedPlan(
        run=RUN,
        round_number=1,
        attempt=0,
        plan=plan,
        signature=sign_plan(plan, known.coordinator, run=RUN, round_number=1, attempt=0),
        certificate=known.coordinator.certificates.signing,
    )

    def read(content: bytes) -> object:
        return SignedPlan.decode(content).check(known.authority.certificate)

    return Prepared(read, [signed.encode()])


def _published(_folder: Path) -> Prepared:
    known = parties()
    record = PublishedRecord(run=RUN, client="device-0001", method="apple", schema_sha256="00" * 32)
    encoded = encode_published(record, _NAMED, known.device)
    return Prepared(
        lambda content: decode_published(content, authority=known.authority.certificate), [encoded]
    )
