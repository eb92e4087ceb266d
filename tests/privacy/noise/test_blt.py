"""Noise through buffers: what is drawn, what a model holds, and what a restart draws again."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from privacy.accounting.toeplitz import buffered_column, buffered_prefix_variances
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.mode import CalibratedRound
from privacy.noise.registry import noise_mode
from privacy.noise.secure_gaussian import SystemKeys, calibrate, each_block
from privacy.noise.tree import DerivedKeys

SECRET = bytes(range(32))
DECAYS, SCALES = (0.99, 0.6), (0.2, 0.3)
SENSITIVITY = 0.5
SETTINGS = TreeNoise(
    clipping_norm=1.0,
    noise_multiplier=2.0,
    delta=1e-6,
    epsilon_budget=8.0,
    adjacency="zero-out",
    min_separation=1,
    max_participation=10,
    mechanism="blt",
    buffer_decays=DECAYS,
    buffer_scales=SCALES,
)


def noised(aggregate: Tensor, number: int, keys: DerivedKeys) -> Tensor:
    """Return a round's release as the coordinator makes it, of float64."""
    calibrated = CalibratedRound(round_number=number, sensitivity=SENSITIVITY, keys=keys)
    return noise_mode(SETTINGS).at_server(aggregate.clone(), torch.Generator(), calibrated)


def noise_of(rounds: int, size: int) -> list[Tensor]:
    """Return the noise of each round, of rounds in which everybody sent zeros."""
    keys, zeros = DerivedKeys(SECRET), torch.zeros(size, dtype=torch.float64)
    return [noised(zeros, number, keys) for number in range(1, rounds + 1)]


def in_steps(size: int) -> tuple[float, float]:
    """Return the grid's step, and the standard deviation of a draw in steps."""
    calibration = calibrate(
        noise_multiplier=2.0, sensitivity=SENSITIVITY * (1 + 2.0**-10), element_count=size
    )
    return calibration.step, calibration.noise_std / calibration.step


def draws(rounds: int, size: int) -> np.ndarray:
    """Return every round's own draw z in steps, ``(rounds, size)``, on no grid."""
    drawn, keys = torch.empty(rounds, size, dtype=torch.float64), DerivedKeys(SECRET)
    for number in range(1, rounds + 1):
        row = drawn[number - 1]

        def keep(where: slice, normals: Tensor, row: Tensor = row) -> None:
            row[where] = normals

        each_block(size, in_steps(size)[1], keys.draw(f"blt round {number}"), keep)
    return drawn.numpy()


def dense(rounds: int) -> np.ndarray:
    column = buffered_column(DECAYS, SCALES, rounds)
    ages = np.subtract.outer(np.arange(rounds), np.arange(rounds))
    return np.where(ages >= 0, column[np.abs(ages)], 0.0)


def test_the_streamed_noise_is_the_inverse_matrix_times_the_draws() -> None:
    rounds, size = 6, 40_000  # Two blocks, on two threads.
    step, _ = in_steps(size)
    released = torch.stack(noise_of(rounds, size)).numpy() / step

    # C w differs from z by the rounding of each round's noise to the grid, and by nothing else.
    rounding = dense(rounds) @ released - draws(rounds, size)

    assert np.array_equal(released, np.round(released))
    assert np.abs(rounding).max() <= 0.5 + 1e-6
    assert np.abs(rounding).max() > 0.49


def test_releases_follow_from_the_ideal_mechanism_on_rounded_aggregates() -> None:
    rounds, size = 5, 3000
    step, _ = in_steps(size)
    generator = torch.Generator().manual_seed(1)
    aggregates = torch.randn(rounds, size, dtype=torch.float64, generator=generator)
    keys = DerivedKeys(SECRET)
    released = torch.stack(
        [noised(aggregate, at + 1, keys) for at, aggregate in enumerate(aggregates)]
    )

    # y_t = round((C g + z)_t - sum over s < t of c_(t-s) y_s), g the rounded aggregates.
    matrix = dense(rounds)
    ideal = matrix @ np.round(aggregates.numpy() / step) + draws(rounds, size)
    steps = released.numpy() / step
    expected = np.round(ideal - (matrix - np.eye(rounds)) @ steps)
    assert np.array_equal(steps, expected)


def test_a_model_holds_the_variance_that_the_account_states() -> None:
    rounds, size = 12, 100_000
    held, variances = torch.zeros(size, dtype=torch.float64), []
    for noise in noise_of(rounds, size):
        held += noise
        variances.append(float(held.var()))

    # z times the sensitivity is 1; five standard errors of a variance, and the grid's thousandths.
    np.testing.assert_allclose(
        variances,
        buffered_prefix_variances(DECAYS, SCALES, rounds),
        rtol=5 * math.sqrt(2 / size) + 0.005,
    )


def test_a_process_that_begins_anew_draws_the_same_bits() -> None:
    noise = noise_of(5, 1000)
    zeros = torch.zeros(1000, dtype=torch.float64)

    # Round 4 by other buffers, then again as a round is that could not be released; then the next.
    keys = DerivedKeys(SECRET)
    for number in (4, 4, 5, 2):
        assert torch.equal(noised(zeros, number, keys), noise[number - 1])


def test_a_model_of_another_size_begins_with_empty_buffers() -> None:
    keys = DerivedKeys(SECRET)
    noised(torch.zeros(1000, dtype=torch.float64), 3, keys)

    assert torch.equal(noised(torch.zeros(500, dtype=torch.float64), 3, keys), noise_of(3, 500)[-1])


def test_rounds_and_secrets_have_draws_of_their_own() -> None:
    zeros = torch.zeros(1000, dtype=torch.float64)
    first = noised(zeros, 1, DerivedKeys(SECRET))
    # Apart from what it takes back of the first, the second round's noise is a draw of its own.
    second = noise_of(2, 1000)[1] + sum(SCALES) * first

    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 6 / math.sqrt(1000)
    assert not torch.equal(first, noised(zeros, 1, DerivedKeys(SECRET[::-1])))


def test_keys_that_do_not_repeat_are_refused() -> None:
    calibrated = CalibratedRound(round_number=1, sensitivity=0.5, keys=SystemKeys())
    mode = noise_mode(SETTINGS)

    with pytest.raises(ValueError, match="needs keys that repeat"):
        mode.at_server(torch.zeros(10), torch.Generator(), calibrated)
    with pytest.raises(ValueError, match="needs the round's sensitivity"):
        mode.at_server(torch.zeros(10), torch.Generator())
