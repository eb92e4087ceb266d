"""Clip and adapt at the close of a round."""

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.vector.schema import Role, Schema, TensorSpec
from privacy.accounting.events import Adjacency
from privacy.clipping.clip import UnusableUpdateError
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import CentralNoise
from privacy.noise.secure_gaussian import NoiseKeys, SystemKeys
from privacy.noise.settings import NoNoise, PaperServerNoise, PrivacySettings
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution
from server.personalisation.round_terms import AddNoise, RoundTerms

SCHEMA = Schema(
    (
        TensorSpec(name="weight", shape=(2,), layer="only"),
        TensorSpec(name="bias", shape=(1,), layer="only"),
    )
)
EQUAL = MeanSettings(weighting="equal")


def close(
    updates: list[list[float]],
    privacy: PrivacySettings,
    *,
    aggregation: AggregationSettings = EQUAL,
    slot_count: int = 4,
    seed: int = 0,
    keys: NoiseKeys | None = None,
) -> Closed:
    return close_round(
        torch.zeros(3),
        [Contribution(slot, torch.tensor(update), 1) for slot, update in enumerate(updates)],
        Closing(
            schema=SCHEMA,
            aggregation=aggregation,
            privacy=privacy,
            slot_count=slot_count,
            generator=torch.Generator().manual_seed(seed),
            round_number=1,
            noise_keys=keys,
        ),
    )


def adaptive(std: float = 0.0, clipping_norm: float = 2.0) -> NoNoise:
    return NoNoise(
        clipping_norm=clipping_norm, adaptive_clipping=AdaptiveClipping(count_noise_std=std)
    )


@pytest.mark.parametrize("aggregation", [EQUAL, AttentiveSettings()])
def test_the_norm_moves_by_how_many_fitted_and_the_model_by_the_updates_alone(
    aggregation: AggregationSettings,
) -> None:
    # Of 4 places 3 were filled and 2 of those fitted: Σ (b - 1/2) = 1/2, so C = 2 e^(-0.2 / 8).
    updates = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.2, 0.2]]
    plain = close(updates, NoNoise(clipping_norm=2.0), aggregation=aggregation)

    closed = close(
        [[*update, fit] for update, fit in zip(updates, (1.0, 0.0, 1.0), strict=True)],
        adaptive(),
        aggregation=aggregation,
    )

    assert closed.next_clipping_norm == pytest.approx(2 * math.exp(-0.2 * 0.5 / 4))
    assert torch.equal(closed.parameters, plain.parameters)


def test_a_norm_that_is_given_stays() -> None:
    assert close([[0.1, 0.2, 0.3]], NoNoise(clipping_norm=2.0)).next_clipping_norm is None


def test_the_count_is_noised_before_it_moves_the_norm() -> None:
    # One client of four fitted: without noise ln C moves by -0.2 * 0.5 / 4 = -0.025, with σ_b = 8
    # by a normal draw of 0.4 around it. The standard deviation of 400 such draws is within 15 % of
    # it, and their mean within 0.08, but for a chance of 1e-4.
    moved = torch.tensor(
        [
            math.log(
                (close([[0.0, 0.0, 0.0, 1.0]], adaptive(8.0), seed=seed).next_clipping_norm or 0)
                / 2
            )
            for seed in range(400)
        ]
    )

    assert float(moved.std()) == pytest.approx(0.4, rel=0.15)
    assert float(moved.mean()) == pytest.approx(-0.025, abs=0.08)


def test_the_count_of_a_guarantee_is_noised_by_keys_and_not_by_the_generator() -> None:
    # As above, but from the operating system's generator: the seed is the same every time.
    settings = CentralNoise(
        clipping_norm=2.0,
        noise_multiplier=1.0,
        delta=1e-6,
        epsilon_budget=8.0,
        adjacency="zero-out",
        adaptive_clipping=AdaptiveClipping(count_noise_std=8.0),
    )
    moved = torch.tensor(
        [
            math.log((close([[0.0, 0.0, 0.0, 1.0]], settings).next_clipping_norm or 0) / 2)
            for _ in range(60)
        ]
    )

    # The standard deviation of 60 draws is within half of it but for a chance of 1e-7.
    assert float(moved.std()) == pytest.approx(0.4, rel=0.5)


def test_one_key_draws_the_count_and_another_the_aggregate() -> None:
    labels: list[str] = []

    class Watched:
        repeats = False

        def draw(self, label: str, /) -> bytes:
            labels.append(label)
            return SystemKeys().draw(label)

    settings = CentralNoise(
        clipping_norm=2.0,
        noise_multiplier=1.0,
        delta=1e-6,
        epsilon_budget=8.0,
        adjacency="zero-out",
        adaptive_clipping=AdaptiveClipping(count_noise_std=8.0),
    )

    close([[0.0, 0.0, 0.0, 1.0]], settings, keys=Watched())

    assert sorted(labels) == ["round 1", "round 1 clipping"]


def test_the_papers_server_noise_leaves_the_norm_to_the_clients() -> None:
    settings = PaperServerNoise(
        clipping_norm=2.0,
        randomisation_magnitude=3.0,
        adaptive_clipping=AdaptiveClipping(count_noise_std=0.0),
    )

    closed = close([[0.0, 0.0, 0.0, 1.0]] * 4, settings)

    assert closed.next_clipping_norm == pytest.approx(2 * math.exp(-0.1))


def test_a_client_that_lies_about_its_fit_counts_as_one() -> None:
    # It claims to have fitted, and is four times too long: clipped, counted, and one of the count.
    closed = close([[4.0, 0.0, 0.0, 1.0]], adaptive(clipping_norm=1.0))

    assert closed.clipped_count == 1
    assert closed.next_clipping_norm == pytest.approx(math.exp(-0.025))
    with pytest.raises(UnusableUpdateError, match="told as 0 or 1"):
        close([[4.0, 0.0, 0.0, 1e6]], adaptive(clipping_norm=1.0))


def test_the_server_clips_every_tensor_again() -> None:
    # |(3, 4)| = 5 and 0.5 against 1 each: sqrt(2) shared out alike.
    settings = NoNoise(clipping_norm=math.sqrt(2), clipping="per-layer")

    closed = close([[3.0, 4.0, 0.5]], settings, slot_count=1)

    assert closed.clipped_count == 1
    assert_close(closed.parameters, torch.tensor([0.6, 0.8, 0.5]), atol=2e-6, rtol=0)


class Taker:
    """Take generated tensors."""

    def __init__(self) -> None:
        self.taken: list[Tensor] = []

    def parameters_for(self, client_name: str) -> Tensor | None:
        return None

    def take(self, client_name: str, generated_update: Tensor, example_count: int) -> None:
        self.taken.append(generated_update)

    def begin(self, terms: RoundTerms) -> None:
        self.taken.clear()

    def sensitivity(self, slot_count: int, adjacency: Adjacency) -> None:
        return None

    def close(self, add_noise: AddNoise | None = None) -> None:
        pass

    def grow(self, generated: Schema, initial: Tensor, seed: int) -> None:
        raise AssertionError

    def forget(self, client_name: str) -> None:
        raise AssertionError

    def state(self) -> Mapping[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        pass


def test_clips_and_fits_go_with_the_shared_tensors_where_others_are_generated() -> None:
    # Ratios 3, 4 and 12 of 13: the generated tensor's share is the second.
    schema = Schema(
        (
            TensorSpec(name="first", shape=(1,), layer="first"),
            TensorSpec(name="head", shape=(1,), layer="head", role=Role.GENERATED),
            TensorSpec(name="last", shape=(1,), layer="last"),
        )
    )
    settings = NoNoise(
        clipping_norm=13.0,
        clipping="per-layer",
        layer_ratios=(3.0, 4.0, 12.0),
        adaptive_clipping=AdaptiveClipping(count_noise_std=0.0),
    )
    taker = Taker()

    closed = close_round(
        torch.zeros(2),
        [Contribution(0, torch.tensor([6.0, 5.0, 6.0, 0.0]), 1, "device-0001")],
        Closing(
            schema=schema,
            aggregation=EQUAL,
            privacy=settings,
            slot_count=1,
            generator=torch.Generator(),
            personalisation=taker,
        ),
    )

    assert_close(closed.parameters, torch.tensor([3.0, 6.0]), rtol=2e-6, atol=0)
    assert [float(update) for update in taker.taken] == [5.0]
    assert closed.next_clipping_norm == pytest.approx(13 * math.exp(0.1))
