"""Layers in turn: how they are shared out, what is trained, what travels, what is refused."""

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edge_client.training.local_round import LocalTrainer
from models.compression.update_format import update_format, update_formats
from models.networks.flat_parameters import initial_parameters
from models.plan.plan import Plan
from models.settings.compression import CompressionSettings
from models.settings.layer_groups import layer_groups
from models.settings.model import schema_of
from models.settings.personalisation import DittoSettings
from models.vector.codec import CodecError
from models.vector.schema import Schema, TensorSpec
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import CentralNoise
from privacy.noise.settings import NoNoise
from tests.edge_client.training_plan import MODEL, make_plan, make_text

SCHEMA = schema_of(MODEL)
# 20 words of 6: the embedding has 120 elements, the GRU 252, the output's bias 20.
EMBEDDING = SCHEMA.slices["embedding.weight"]
IN_TWO = CompressionSettings(uplink="none", layer_groups=2)


def plan_of(settings: CompressionSettings | None = IN_TWO, **training: Any) -> Plan:
    return msgspec.structs.replace(make_plan(**training), compression=settings)


def schema_of_sizes(*sizes: int) -> Schema:
    return Schema(
        tuple(
            TensorSpec(name=f"{place}", shape=(size,), layer=f"layer {place}")
            for place, size in enumerate(sizes)
        )
    )


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ((10, 10, 10, 30), 2, [["0", "1", "2"], ["3"]]),
        ((300, 54, 1), 2, [["0"], ["1", "2"]]),
        ((1, 1, 100), 3, [["0"], ["1"], ["2"]]),
        ((100, 1, 1), 3, [["0"], ["1"], ["2"]]),
        ((5, 5, 5, 5, 5, 5), 3, [["0", "1"], ["2", "3"], ["4", "5"]]),
    ],
)
def test_neighbouring_layers_share_a_group_and_groups_are_about_as_large(
    sizes: tuple[int, ...], count: int, expected: list[list[str]]
) -> None:
    groups = layer_groups(schema_of_sizes(*sizes), count)

    assert [[spec.name for spec in group.tensors] for group in groups] == expected


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.data())
def test_every_layer_is_in_one_group_and_no_group_is_empty(
    sizes: list[int], data: st.DataObject
) -> None:
    schema = schema_of_sizes(*sizes)
    groups = layer_groups(schema, data.draw(st.integers(1, len(sizes))))

    assert all(group.tensors for group in groups)
    assert tuple(spec for group in groups for spec in group.tensors) == schema.tensors


@pytest.mark.parametrize(("round_number", "held_still"), [(1, "gru"), (2, "embedding")])
def test_a_round_trains_what_it_would_with_the_other_layers_frozen(
    round_number: int, held_still: str
) -> None:
    frozen = (held_still, "output") if held_still == "gru" else (held_still,)
    parameters = initial_parameters(MODEL, 1)

    def update(plan: Plan) -> torch.Tensor:
        trained = LocalTrainer(plan).train(
            parameters, make_text(60), round_number=round_number, client_name="a"
        )
        return trained.update

    found, expected = update(plan_of()), update(plan_of(None, frozen=frozen))
    moved = torch.zeros(SCHEMA.element_count, dtype=torch.bool)
    for spec in SCHEMA.tensors:
        moved[SCHEMA.slices[spec.name]] = spec.layer not in frozen
    assert bool(expected.any())
    torch.testing.assert_close(found[moved], expected, rtol=0, atol=0)
    assert not bool(found[~moved].any())


def test_one_trainer_holds_other_layers_still_in_every_round() -> None:
    trainer, parameters = LocalTrainer(plan_of()), initial_parameters(MODEL, 1)

    is_embedding_sent = []
    for number in (1, 2, 3, 4):
        trained = trainer.train(parameters, make_text(60), round_number=number, client_name="a")
        is_embedding_sent.append(bool(trained.update[EMBEDDING].any()))

    assert is_embedding_sent == [True, False, True, False]


@pytest.mark.parametrize(("round_number", "elements"), [(1, 120), (2, 252 + 20), (3, 120)])
def test_only_a_rounds_layers_travel(round_number: int, elements: int) -> None:
    update = np.arange(1, SCHEMA.element_count + 1, dtype=np.float32)
    travels_as = update_format(plan_of(), round_number)

    payload = travels_as.encode(update, seed=1)
    found = travels_as.decode(payload)

    assert len(payload) == travels_as.payload_bytes == 48 + 4 * elements
    assert np.count_nonzero(found) == elements
    assert (found[found != 0] == update[found != 0]).all()
    with pytest.raises(CodecError, match=r"another model or another way|contiguous bytes"):
        update_format(plan_of(), round_number + 1).decode(payload)


def test_layers_of_as_many_elements_are_still_not_those_of_another_round() -> None:
    model = msgspec.structs.replace(MODEL, vocabulary_size=42)  # 42 x 6 = 252, as in the GRU.
    plan = msgspec.structs.replace(
        make_plan(model=model), compression=CompressionSettings(uplink="int8", layer_groups=3)
    )
    update = np.ones(schema_of(model).element_count, np.float32)
    payload = update_format(plan, 1).encode(update, seed=1)

    assert update_format(plan, 2).payload_bytes == len(payload)
    with pytest.raises(CodecError, match="another model or another way of compressing"):
        update_format(plan, 2).check_layout(payload)


def test_sizes_of_a_run_span_those_of_its_rounds() -> None:
    formats = update_formats(plan_of())

    assert (formats.least_bytes, formats.payload_bytes) == (48 + 4 * 120, 48 + 4 * 272)
    with pytest.raises(CodecError, match="of shape"):
        formats.of_round(1).encode(np.ones(120, np.float32), seed=1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"compression": CompressionSettings(uplink="none", layer_groups=4)}, r"in \[2, 3\]"),
        ({"personalisation": DittoSettings()}, 'method = "global", got "ditto"'),
        (
            {
                "privacy": NoNoise(
                    clipping_norm=1.0, adaptive_clipping=AdaptiveClipping(count_noise_std=0.5)
                )
            },
            "no adaptive_clipping",
        ),
        (
            {
                "privacy": CentralNoise(
                    adjacency="zero-out",
                    clipping_norm=1.0,
                    noise_multiplier=1.0,
                    delta=1e-5,
                    epsilon_budget=10.0,
                )
            },
            "noise would fall on layers that nobody trained",
        ),
    ],
)
def test_what_layers_in_turn_do_not_go_with_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        msgspec.structs.replace(plan_of(), **changes)


def test_a_kept_optimiser_state_is_refused() -> None:
    with pytest.raises(ValueError, match='optimiser_state = "fresh"'):
        plan_of(optimiser_state="kept")


def test_a_single_group_is_refused() -> None:
    with pytest.raises(ValueError, match="layer_groups must be >= 2, got 1"):
        CompressionSettings(uplink="none", layer_groups=1)
