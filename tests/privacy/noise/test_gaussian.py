import math

import msgspec
import pytest
import torch
from torch import Tensor

from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise
from privacy.noise.gaussian import LocalGaussian
from privacy.noise.mode import Arrival, CalibratedRound
from privacy.noise.registry import noise_mode
from privacy.noise.secure_gaussian import SystemKeys
from privacy.noise.tree import DerivedKeys

SIZE = 400_000
LOCAL = LocalNoise(clipping_norm=0.5, noise_multiplier=2.0, delta=1e-6, epsilon_budget=8.0)
CENTRAL = CentralNoise(
    clipping_norm=0.5,
    noise_multiplier=2.0,
    delta=1e-6,
    epsilon_budget=8.0,
    adjacency="replace-one",
)
# The grid's share of the noise: calibrate() rounds to a step worth at most 2^-10.
GRID = 2.0**-10


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def assert_std(noise: Tensor, expected: float) -> None:
    # 5.5 standard errors of 400,000 draws: a false failure once in 10 million runs.
    error = 5.5 * expected / math.sqrt(2 * SIZE)
    assert expected - error < float(noise.double().std()) < expected * (1 + GRID) + error


def test_local_adds_z_times_twice_the_clip_at_the_client_only() -> None:
    mode = noise_mode(LOCAL)
    update = torch.full((SIZE,), 0.25)

    sent = mode.at_client(update, generator(), tensors=[slice(0, SIZE)])

    # 2 * (2 * 0.5) = 2.
    assert_std(sent - 0.25, 2.0)
    assert torch.equal(update, torch.full((SIZE,), 0.25))
    assert torch.equal(mode.at_server(update.clone(), generator()), update)
    assert torch.equal(mode.after_step(update.clone(), generator()), update)
    assert mode.arrival is Arrival.NOISED
    assert mode.adjacency is None


def test_local_never_draws_the_same_noise_twice() -> None:
    mode = noise_mode(LOCAL)
    update = torch.zeros(SIZE)

    first = mode.at_client(update, generator(), tensors=[slice(0, SIZE)])
    second = mode.at_client(update, generator(), tensors=[slice(0, SIZE)])

    assert not torch.equal(first, second)


def test_a_tests_own_keys_repeat_the_draw() -> None:
    drawn = [
        LocalGaussian(LOCAL, DerivedKeys(bytes(32))).at_client(
            torch.zeros(10), generator(), tensors=[slice(0, 10)]
        )
        for _ in range(2)
    ]

    assert torch.equal(*drawn)


def test_central_adds_z_times_the_sensitivity_at_the_server_only() -> None:
    mode = noise_mode(CENTRAL)
    calibrated = CalibratedRound(round_number=1, sensitivity=0.125, keys=SystemKeys())

    noise = mode.at_server(torch.zeros(SIZE), generator(), calibrated)

    assert_std(noise, 0.25)
    update = torch.ones(SIZE)
    assert torch.equal(mode.at_client(update, generator(), tensors=[]), torch.ones(SIZE))
    assert torch.equal(mode.after_step(update, generator()), torch.ones(SIZE))
    assert mode.arrival is Arrival.CLIPPED
    assert mode.adjacency == "replace-one"


def test_central_draws_anew_for_every_round_and_every_repetition() -> None:
    mode = noise_mode(CENTRAL)
    calibrated = CalibratedRound(round_number=1, sensitivity=0.125, keys=SystemKeys())

    first = mode.at_server(torch.zeros(100), generator(), calibrated)
    again = mode.at_server(torch.zeros(100), generator(), calibrated)

    assert not torch.equal(first, again)


def test_central_without_the_sensitivity_of_the_round_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the round's sensitivity"):
        noise_mode(CENTRAL).at_server(torch.zeros(10), generator())


def test_central_spends_part_of_z_on_the_count_behind_an_adaptive_clip() -> None:
    # z = 2, σ_b = 4 and replace-one moves the count by 1: z_Δ = (1/4 - 1/16)^-1/2 = 2.3094.
    adaptive = AdaptiveClipping(count_noise_std=4.0)
    mode = noise_mode(msgspec.structs.replace(CENTRAL, adaptive_clipping=adaptive))
    calibrated = CalibratedRound(round_number=1, sensitivity=0.125, keys=SystemKeys())

    noise = mode.at_server(torch.zeros(SIZE), generator(), calibrated)

    assert_std(noise, 0.125 * (1 / 4 - 1 / 16) ** -0.5)


def test_a_count_that_would_spend_more_than_z_is_refused() -> None:
    with pytest.raises(ValueError, match=r"count_noise_std must be > 2 .*got 2; raise it"):
        msgspec.structs.replace(CENTRAL, adaptive_clipping=AdaptiveClipping(count_noise_std=2.0))


def test_the_first_norm_lies_below_the_largest_under_a_guarantee_too() -> None:
    adaptive = AdaptiveClipping(count_noise_std=9.0, largest=0.1)

    with pytest.raises(ValueError, match=r"clipping_norm must be <= adaptive_clipping.largest 0.1"):
        msgspec.structs.replace(CENTRAL, adaptive_clipping=adaptive)


def test_the_guarantee_says_that_the_count_is_part_of_it() -> None:
    adaptive = AdaptiveClipping(count_noise_std=9.0)

    assert "count" not in CENTRAL.guarantee
    changed = msgspec.structs.replace(CENTRAL, adaptive_clipping=adaptive)
    assert "the count behind the clip included" in changed.guarantee
