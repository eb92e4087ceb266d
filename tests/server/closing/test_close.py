import gc
import math
import weakref
from collections.abc import Iterator, Mapping

import msgspec
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.vector.schema import Role, Schema, TensorSpec
from privacy.accounting.events import Adjacency
from privacy.noise.registry import noise_mode
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)
from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution
from server.personalisation.method import ServerHalf
from server.personalisation.round_terms import AddNoise, RoundTerms

SCHEMA = Schema(
    (
        TensorSpec(name="weight", shape=(3, 4), layer="only"),
        TensorSpec(name="bias", shape=(4,), layer="only"),
    )
)
EQUAL = MeanSettings(weighting="equal")


def filled(value: float) -> Tensor:
    return torch.full((16,), value)


def close(
    updates: list[Tensor] | Iterator[Tensor],
    *,
    parameters: Tensor | None = None,
    aggregation: AggregationSettings = EQUAL,
    privacy: PrivacySettings | None = None,
    schema: Schema = SCHEMA,
    slot_count: int = 2,
    seed: int = 0,
    example_count: int = 1,
    example_cap: int | None = None,
    personalisation: ServerHalf | None = None,
) -> Closed:
    contributions = (
        Contribution(slot, update, example_count + slot, f"device-{slot:04d}")
        for slot, update in enumerate(updates)
    )
    return close_round(
        filled(1.0) if parameters is None else parameters,
        contributions,
        Closing(
            schema=schema,
            aggregation=aggregation,
            privacy=NoNoise() if privacy is None else privacy,
            slot_count=slot_count,
            generator=torch.Generator().manual_seed(seed),
            seeded=True,
            example_cap=example_cap,
            personalisation=personalisation,
        ),
    )


def test_the_parameters_move_by_the_step_size_times_the_aggregate() -> None:
    parameters = filled(1.0)

    closed = close(
        [filled(1.0), filled(3.0)],
        parameters=parameters,
        aggregation=MeanSettings(weighting="equal", server_step_size=0.5),
    )

    # 1 + 0.5 * (1 + 3) / 2
    assert_close(closed.parameters, filled(2.0))
    assert closed.contribution_count == 2
    assert torch.equal(parameters, filled(1.0))


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_frozen_tensors_stay_bit_for_bit_whatever_is_noised(frozen: str) -> None:
    schema = Schema(
        tuple(
            msgspec.structs.replace(spec, role=Role.FROZEN if spec.name == frozen else spec.role)
            for spec in SCHEMA.tensors
        )
    )
    before = torch.arange(16.0)
    trained = schema.with_roles(Role.SHARED).element_count
    privacy = PaperServerNoise(randomisation_magnitude=0.1, clipping_norm=100.0)

    closed = close(
        [torch.full((trained,), 1.0), torch.full((trained,), 3.0)],
        parameters=before,
        privacy=privacy,
        schema=schema,
    )

    place = schema.slices[frozen]
    moved = closed.parameters - before
    assert torch.equal(moved[place], torch.zeros(16 - trained))
    moved[place] = 2.0
    # Eight or twelve draws of 0.1 beyond 0.6 have a chance below 1e-7.
    assert_close(moved, filled(2.0), rtol=0, atol=0.6)
    assert torch.equal(before, torch.arange(16.0))
    assert (moved != 2.0).sum() == trained


def test_the_server_clips_again_and_counts_whom() -> None:
    # |16 ones| = 4, so a clip of 2 halves them; the other update has norm 2 exactly.
    closed = close([filled(1.0), filled(0.5)], privacy=NoNoise(clipping_norm=2.0))

    assert closed.clipped_count == 1
    assert_close(closed.parameters, filled(1.5), rtol=2e-6, atol=0)


def test_example_counts_are_capped() -> None:
    # Counts 10 and 11 capped to 10 weigh the same.
    closed = close(
        [filled(0.0), filled(1.0)],
        aggregation=MeanSettings(),
        example_count=10,
        example_cap=10,
    )

    assert_close(closed.parameters, filled(1.5))


def test_the_same_round_closes_in_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(1)
    updates = [torch.randn(16, generator=generator) for _ in range(5)]
    privacy = PaperServerNoise(randomisation_magnitude=0.1, clipping_norm=1.0)

    first, again = (
        close(updates, aggregation=AttentiveSettings(), privacy=privacy, slot_count=6, seed=3)
        for _ in range(2)
    )

    assert torch.equal(first.parameters, again.parameters)


def test_paper_server_noise_is_drawn_once_and_not_scaled_by_the_step() -> None:
    noise = close(
        [filled(0.0)],
        parameters=filled(0.0),
        aggregation=MeanSettings(server_step_size=100.0),
        privacy=PaperServerNoise(randomisation_magnitude=0.25),
        seed=5,
    ).parameters

    expected = torch.empty(16).normal_(generator=torch.Generator().manual_seed(5)) * 0.25
    assert_close(noise, expected)


def test_noise_that_the_client_added_is_not_clipped_away() -> None:
    # The arriving norm is 40, ten times the clip: the excess is the client's own noise.
    privacy = PaperNoise(randomisation_magnitude=1.0, clipping_norm=4.0)

    closed = close([filled(10.0)], parameters=filled(0.0), privacy=privacy, slot_count=1)

    assert closed.clipped_count == 0
    assert_close(closed.parameters, filled(10.0))


@pytest.mark.parametrize(
    "aggregation",
    [AttentiveSettings(attention_strength=math.log(2)), LiteralSettings()],
    ids=["attentive", "literal"],
)
def test_clean_scores_make_the_weights_those_of_the_model_without_noise(
    aggregation: AggregationSettings,
) -> None:
    generator = torch.Generator().manual_seed(2)
    clean = [filled(0.25), filled(0.0)]
    loud = PaperNoise(randomisation_magnitude=3.0, clipping_norm=1.0, score="clean")
    tensors = list(SCHEMA.slices.values())
    mode = noise_mode(loud)

    quiet = close(clean, aggregation=aggregation, privacy=NoNoise(clipping_norm=1.0))
    noisy = close(
        [mode.at_client(update, generator, tensors=tensors) for update in clean],
        aggregation=aggregation,
        privacy=loud,
    )

    assert quiet.aggregation_weights is not None
    assert noisy.aggregation_weights is not None
    for mine, theirs in zip(
        noisy.aggregation_weights.shares, quiet.aggregation_weights.shares, strict=True
    ):
        assert mine == pytest.approx(theirs, rel=1e-6)
    assert not torch.allclose(noisy.parameters, quiet.parameters, atol=0.1)


def test_weights_are_told_by_slot_where_nothing_is_promised() -> None:
    closed = close([filled(0.0), filled(1.0)], aggregation=LiteralSettings())

    weights = closed.aggregation_weights

    assert weights is not None
    assert weights.slots == (0, 1)
    assert weights.layers == ("weight", "bias")
    # |12 ones| = sqrt(12), |4 ones| = 2.
    assert weights.shares[0] == pytest.approx(
        (1 / (1 + math.exp(math.sqrt(12))), 1 / (1 + math.exp(2)))
    )


@pytest.mark.slow
def test_one_update_at_a_time_is_alive() -> None:
    made: list[weakref.ref[Tensor]] = []

    def contributions() -> Iterator[Contribution]:
        for slot in range(7):
            gc.collect()
            assert not any(reference() is not None for reference in made)
            update = filled(1.0)
            made.append(weakref.ref(update))
            contribution = Contribution(slot, update, 1)
            del update
            yield contribution
            del contribution

    close_round(
        filled(0.0),
        contributions(),
        Closing(
            schema=SCHEMA,
            aggregation=EQUAL,
            privacy=NoNoise(),
            slot_count=7,
            generator=torch.Generator(),
        ),
    )

    assert len(made) == 7


def test_one_buffer_may_serve_every_contribution() -> None:
    buffer = torch.empty(16)

    def contributions() -> Iterator[Contribution]:
        for slot in range(4):
            yield Contribution(slot, buffer.fill_(slot), 1)

    closed = close_round(
        filled(0.0),
        contributions(),
        Closing(
            schema=SCHEMA,
            aggregation=EQUAL,
            privacy=NoNoise(),
            slot_count=4,
            generator=torch.Generator(),
        ),
    )

    assert_close(closed.parameters, filled(1.5))


def test_a_nan_names_its_slot() -> None:
    with pytest.raises(ValueError, match="slot 1: client update must be finite"):
        close([filled(0.0), filled(math.nan)])


def test_a_result_beyond_float32_is_refused() -> None:
    with pytest.raises(ValueError, match="new parameters must be finite"):
        close([filled(1e17)], aggregation=MeanSettings(server_step_size=1e30))


def test_no_contribution_is_no_round() -> None:
    with pytest.raises(ValueError, match="at least one client update"):
        close([])


@pytest.mark.parametrize(
    "parameters", [torch.zeros(15), torch.zeros(16, dtype=torch.float64)], ids=["short", "float64"]
)
def test_parameters_of_another_shape_or_type_are_refused(parameters: Tensor) -> None:
    with pytest.raises(ValueError, match="parameters must be float32 of shape"):
        close([filled(0.0)], parameters=parameters)


class _Recorder:
    """Stand in for a method that generates tensors: keep what it is given."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, list[float], int]] = []
        self.closed = 0

    def parameters_for(self, client_name: str) -> Tensor | None:
        return torch.zeros(2)

    def take(self, client_name: str, generated_update: Tensor, example_count: int) -> None:
        self.taken.append((client_name, generated_update.tolist(), example_count))

    def begin(self, terms: RoundTerms) -> None:
        self.taken = []

    def sensitivity(self, slot_count: int, adjacency: Adjacency) -> None:
        return None

    def close(self, add_noise: AddNoise | None = None) -> None:
        self.closed += 1

    def grow(self, generated: Schema, initial: Tensor, seed: int) -> None:
        raise AssertionError

    def forget(self, client_name: str) -> None:
        raise AssertionError

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        raise AssertionError


GENERATING = Schema(
    (
        TensorSpec(name="first", shape=(1,), layer="first"),
        TensorSpec(name="made", shape=(2,), layer="made", role=Role.GENERATED),
        TensorSpec(name="last", shape=(1,), layer="last"),
    )
)


def test_generated_tensors_go_to_the_method_and_shared_ones_to_the_rule() -> None:
    method = _Recorder()

    closed = close(
        [torch.tensor([1.0, 8.0, 9.0, 3.0]), torch.tensor([3.0, 6.0, 7.0, 5.0])],
        parameters=torch.zeros(2),
        schema=GENERATING,
        personalisation=method,
    )

    assert_close(closed.parameters, torch.tensor([2.0, 4.0]))
    assert method.taken == [("device-0000", [8.0, 9.0], 1), ("device-0001", [6.0, 7.0], 2)]
    assert method.closed == 1


def test_generated_tensors_are_clipped_again_unless_they_arrive_noised() -> None:
    # |(3, 4)| = 5: half of it is left at a clip of 2.5, and all of it under the client's own noise.
    update = torch.tensor([0.0, 3.0, 4.0, 0.0])
    privacies = (
        NoNoise(clipping_norm=2.5),
        PaperNoise(clipping_norm=2.5, randomisation_magnitude=0.1),
    )
    taken = []
    for privacy in privacies:
        method = _Recorder()
        close(
            [update],
            parameters=torch.zeros(2),
            schema=GENERATING,
            privacy=privacy,
            personalisation=method,
        )
        taken.append(method.taken[0][1])

    assert_close(torch.tensor(taken), torch.tensor([[1.5, 2.0], [3.0, 4.0]]))


def test_what_a_failed_attempt_took_is_forgotten() -> None:
    method = _Recorder()
    method.take("device-0007", torch.zeros(2), 1)

    close(
        [torch.tensor([1.0, 8.0, 9.0, 3.0])],
        parameters=torch.zeros(2),
        schema=GENERATING,
        personalisation=method,
    )

    assert [name for name, _, _ in method.taken] == ["device-0000"]


def test_a_round_of_a_method_that_shares_nothing_counts_its_contributions() -> None:
    closed = close([torch.zeros(0)] * 2, parameters=torch.zeros(0), schema=Schema(()))

    assert closed.parameters.shape == (0,)
    assert closed.contribution_count == 2


def test_everything_generated_goes_to_the_method() -> None:
    method = _Recorder()
    made = TensorSpec(name="made", shape=(2,), layer="made", role=Role.GENERATED)

    close(
        [torch.ones(2)], parameters=torch.zeros(0), schema=Schema((made,)), personalisation=method
    )

    assert method.taken == [("device-0000", [1.0, 1.0], 1)]


def test_a_method_learns_nothing_from_a_round_that_failed() -> None:
    method = _Recorder()

    with pytest.raises(ValueError, match="slot 0"):
        close(
            [torch.full((4,), math.nan)],
            parameters=torch.zeros(2),
            schema=GENERATING,
            personalisation=method,
        )

    assert method.taken == []
    assert method.closed == 0


def test_generated_tensors_need_a_method() -> None:
    with pytest.raises(ValueError, match=r"\['made'\] are not"):
        close([torch.zeros(4)], parameters=torch.zeros(2), schema=GENERATING)


def test_personal_tensors_never_reach_the_server() -> None:
    personal = Schema(
        (
            TensorSpec(name="shared", shape=(1,), layer="a"),
            TensorSpec(name="own", shape=(1,), layer="b", role=Role.PERSONAL),
        )
    )

    with pytest.raises(ValueError, match="never leave a device"):
        close(
            [torch.zeros(2)],
            parameters=torch.zeros(1),
            schema=personal,
            personalisation=_Recorder(),
        )
