"""A round under a guarantee: the noise has the size that the rule's sensitivity asks for."""

import math

import msgspec
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.settings.hypernetwork import HypernetworkSettings
from models.vector.schema import Role, Schema, TensorSpec
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.secure_gaussian import NoiseKeys
from privacy.noise.settings import PrivacySettings
from privacy.noise.tree import DerivedKeys
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)
from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution
from server.personalisation.hypernetwork import HypernetworkHalf

SIZE = 200_000
SCHEMA = Schema((TensorSpec(name="weight", shape=(SIZE,), layer="only"),))
EQUAL = MeanSettings(weighting="equal")
CENTRAL = CentralNoise(
    clipping_norm=2.0, noise_multiplier=3.0, delta=1e-6, epsilon_budget=8.0, adjacency="zero-out"
)
TREE = TreeNoise(
    clipping_norm=2.0,
    noise_multiplier=3.0,
    delta=1e-6,
    epsilon_budget=8.0,
    adjacency="zero-out",
    min_separation=1,
    max_participation=9,
)
BUFFERS = msgspec.structs.replace(TREE, mechanism="blt", buffer_decays=(0.5,), buffer_scales=(0.5,))
KEYS = DerivedKeys(bytes(range(32)))


def close(
    updates: list[Tensor],
    *,
    privacy: PrivacySettings = CENTRAL,
    aggregation: AggregationSettings = EQUAL,
    slot_count: int = 10,
    round_number: int | None = 1,
    keys: NoiseKeys | None = None,
    parameters: Tensor | None = None,
    schema: Schema = SCHEMA,
) -> Closed:
    return close_round(
        torch.zeros(SIZE) if parameters is None else parameters,
        (Contribution(slot, update, 1) for slot, update in enumerate(updates)),
        Closing(
            schema=schema,
            aggregation=aggregation,
            privacy=privacy,
            slot_count=slot_count,
            generator=torch.Generator(),
            round_number=round_number,
            noise_keys=keys,
        ),
    )


def pointing(length: float) -> Tensor:
    """Return an update of that norm, all in its first element."""
    update = torch.zeros(SIZE)
    update[0] = length
    return update


def assert_std(noise: Tensor, expected: float) -> None:
    # 5.5 standard errors: a false failure once in 10 million runs; the grid adds a thousandth.
    error = 5.5 * expected / math.sqrt(2 * len(noise))
    assert expected - error < float(noise.double().std()) < expected * (1 + 2.0**-9) + error


def test_central_noise_is_z_times_the_clip_over_the_fixed_slots() -> None:
    closed = close([pointing(1.0)])

    # One of ten places is filled: the mean is 0.1, and 3 * 2 / 10 = 0.6 hides it.
    assert_std(closed.parameters[1:], 0.6)
    assert closed.aggregation_weights is None


def test_central_noise_of_attention_follows_its_sensitivity() -> None:
    closed = close([pointing(1.0)], aggregation=AttentiveSettings(attention_strength=0.5))

    strong = math.exp(0.5)
    assert_std(closed.parameters[1:], 3 * 2 * strong / (strong + 9))


def test_the_servers_step_scales_the_noise_with_the_aggregate() -> None:
    closed = close([pointing(1.0)], aggregation=MeanSettings(weighting="equal", server_step_size=2))

    assert_std(closed.parameters[1:], 1.2)


def test_a_client_that_does_not_clip_is_clipped_and_counted() -> None:
    # The same keys draw the same noise, so the difference is what the updates come to.
    honest = close([pointing(2.0)], keys=KEYS)
    cheating = close([pointing(200.0)], keys=KEYS)

    assert (honest.clipped_count, cheating.clipped_count) == (0, 1)
    assert_close(cheating.parameters, honest.parameters, atol=1e-5, rtol=0)


def test_an_empty_place_is_a_client_that_sent_zeros_bit_for_bit() -> None:
    attentive = AttentiveSettings(attention_strength=0.5)

    absent = close([pointing(1.0)], aggregation=attentive, keys=KEYS)
    zeros = close([pointing(1.0), torch.zeros(SIZE)], aggregation=attentive, keys=KEYS)

    assert torch.equal(absent.parameters, zeros.parameters)


@pytest.mark.parametrize("aggregation", [EQUAL, AttentiveSettings()])
def test_a_round_of_empty_places_is_released_as_noise(aggregation: AggregationSettings) -> None:
    nobody = close([], aggregation=aggregation, keys=KEYS)
    zeros = close([torch.zeros(SIZE)], aggregation=aggregation, keys=KEYS)

    assert torch.equal(nobody.parameters, zeros.parameters)
    assert nobody.parameters.any()


def test_the_noise_of_a_round_is_never_drawn_twice() -> None:
    first, again = close([pointing(1.0)]), close([pointing(1.0)])

    assert not torch.equal(first.parameters, again.parameters)


def test_a_tree_leaves_in_the_model_the_noise_of_its_digits() -> None:
    parameters = torch.zeros(SIZE)
    for number in (1, 2, 3):
        parameters = close(
            [pointing(1.0)],
            privacy=TREE,
            round_number=number,
            keys=KEYS,
            parameters=parameters,
        ).parameters

    # 3 = 2 + 1: two draws of 3 * 2 / 10 each.
    assert_std(parameters[1:], 0.6 * math.sqrt(2))


def test_buffers_leave_in_the_model_the_noise_that_their_account_states() -> None:
    parameters, keys = torch.zeros(SIZE), DerivedKeys(bytes(range(32)))
    for number in (1, 2, 3):
        parameters = close(
            [pointing(1.0)],
            privacy=BUFFERS,
            round_number=number,
            keys=keys,
            parameters=parameters,
        ).parameters

    # C's column is 1, 1/2, 1/4, its inverse's 1, -1/2, 0: the model holds z_3 + z_2/2 + z_1/2.
    assert_std(parameters[1:], 0.6 * math.sqrt(1 + 1 / 4 + 1 / 4))


@pytest.mark.parametrize("name", ["tree", "buffers"])
def test_correlated_noise_without_its_own_keys_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="keys that repeat"):
        close([pointing(1.0)], privacy={"tree": TREE, "buffers": BUFFERS}[name])


def test_local_noise_arrives_with_the_updates_and_is_not_clipped_away() -> None:
    local = LocalNoise(clipping_norm=2.0, noise_multiplier=3.0, delta=1e-6, epsilon_budget=8.0)

    closed = close([pointing(500.0)], privacy=local, slot_count=1, round_number=None)

    assert torch.equal(closed.parameters, pointing(500.0))
    assert closed.clipped_count == 0
    assert closed.aggregation_weights is None


@pytest.mark.parametrize("aggregation", [MeanSettings(), LiteralSettings()])
def test_a_rule_without_a_bound_is_refused_before_anything_is_summed(
    aggregation: AggregationSettings,
) -> None:
    with pytest.raises(ValueError, match="aggregation"):
        close([torch.full((SIZE,), math.nan)], aggregation=aggregation)


def test_calibrated_noise_needs_to_know_its_round() -> None:
    with pytest.raises(ValueError, match="round_number must be given"):
        close([pointing(1.0)], round_number=None)


MADE = TensorSpec(name="made", shape=(2000,), layer="made", role=Role.GENERATED)
GENERATING = Schema((*SCHEMA.tensors, MADE))
TINY = HypernetworkSettings(
    embedding_size=2,
    hidden_size=4,
    basis_size=40,
    # A step of 1 without momentum and decay is the noised gradient itself.
    learning_rate=1.0,
    momentum=0.0,
    weight_decay=0.0,
    client_gradient_norm=0.5,
)


def hypernetwork(settings: HypernetworkSettings = TINY) -> HypernetworkHalf:
    return HypernetworkHalf(settings, Schema((MADE,)), run_seed=1, initial=torch.ones(2000))


def teach(
    updates: list[Tensor], *, schema: Schema = GENERATING, privacy: CentralNoise = CENTRAL
) -> tuple[Closed, Tensor]:
    """Return the round's outcome and how φ moved."""
    half = hypernetwork()
    before = half.state()["phi"]
    closed = close_round(
        torch.zeros(schema.with_roles(Role.SHARED).element_count),
        (Contribution(slot, update, 1, f"c{slot}") for slot, update in enumerate(updates)),
        Closing(
            schema=schema,
            aggregation=EQUAL,
            privacy=privacy,
            slot_count=10,
            generator=torch.Generator(),
            personalisation=half,
            round_number=1,
            noise_keys=KEYS,
        ),
    )
    return closed, half.state()["phi"] - before


def trained(length: float) -> Tensor:
    """Return an upload whose generated part has that much in every element."""
    return torch.cat([pointing(0.0), torch.full((2000,), length)])


def test_aggregate_and_hypernetwork_share_out_one_noise_multiplier() -> None:
    closed, moved = teach([trained(1.0)])

    # Two vectors, so √2 times 3 * 2 / 10 on the one and √2 times 3 * 0.5 / 10 on the other:
    # (0.2 / 0.8485)² + (0.05 / 0.2121)² = 1 / 3², the multiplier of the ledger.
    assert_std(closed.parameters, 0.6 * math.sqrt(2))
    assert_std(moved, 0.15 * math.sqrt(2))


def test_sums_and_hypernetwork_share_out_one_noise_multiplier() -> None:
    summed = msgspec.structs.replace(CENTRAL, noise_multiplier=0.03, noise_on="sums")

    closed, moved = teach([trained(0.0)] * 8, privacy=summed)

    # √2 times 0.03 * 2 * √1.1 over eight clients, whose weight is known to 0.14 of one; and √2
    # times 0.03 * 0.5 / 10 as ever.
    expected = 0.03 * 2 * math.sqrt(1.1) * math.sqrt(2) / 8
    assert float(closed.parameters.std()) == pytest.approx(expected, rel=0.06)
    assert_std(moved, 0.0015 * math.sqrt(2))


def test_where_nothing_is_shared_no_sum_of_weights_is_released() -> None:
    summed = msgspec.structs.replace(CENTRAL, noise_on="sums")

    closed, moved = teach([torch.ones(2000)], schema=Schema((MADE,)), privacy=summed)

    assert closed.parameters.shape == (0,)
    assert closed.noised_weights is None
    assert_std(moved, 0.15)


def test_aggregate_and_hypernetwork_have_draws_of_their_own() -> None:
    closed, moved = teach([])

    # Equal draws would correlate by 1; unequal ones of 82,000 by less than 0.02, but for a chance
    # of one in a hundred million.
    both = torch.stack([closed.parameters[: len(moved)], moved])
    assert abs(float(torch.corrcoef(both)[0, 1])) < 0.02


def test_where_nothing_is_shared_the_hypernetwork_has_the_whole_multiplier() -> None:
    closed, moved = teach([torch.ones(2000)], schema=Schema((MADE,)))

    assert closed.parameters.shape == (0,)
    assert_std(moved, 0.15)


def test_one_client_moves_the_hypernetwork_by_its_norm_over_the_places() -> None:
    # The same keys draw the same noise, so the difference is what the client's update came to.
    _, with_it = teach([trained(0.001), trained(100.0)])
    _, without = teach([trained(0.001), trained(0.0)])

    assert float((with_it - without).norm()) == pytest.approx(0.05, rel=1e-3)


def test_a_hypernetwork_without_a_bound_on_one_client_is_refused() -> None:
    with pytest.raises(ValueError, match="client_gradient_norm must be given"):
        close_round(
            torch.zeros(SIZE),
            [],
            Closing(
                schema=GENERATING,
                aggregation=EQUAL,
                privacy=CENTRAL,
                slot_count=10,
                generator=torch.Generator(),
                personalisation=hypernetwork(
                    msgspec.structs.replace(TINY, client_gradient_norm=None)
                ),
                round_number=1,
            ),
        )


def test_a_tree_covers_no_generated_tensors() -> None:
    with pytest.raises(ValueError, match=r'set privacy\.mode = "central"'):
        close([trained(0.0)], privacy=TREE, schema=GENERATING)
