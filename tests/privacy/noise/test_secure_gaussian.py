import math

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privacy.noise.secure_gaussian import (
    KEY_BYTES,
    Calibration,
    Draw,
    SystemKeys,
    add_gaussian,
    calibrate,
)

KEY = bytes(range(32))
BLOCK = 1 << 15
FINE = Calibration(noise_std=1.0, step=2.0**-20)


def expected_normal(key: bytes, block: int, position: int) -> float:
    """Return one normal, made by the textbook from single AES blocks."""
    half = BLOCK // 2
    pair = position % half

    def number(index: int) -> int:
        counter = ((block << 64) + index // 2).to_bytes(16, "big")
        stream = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(counter)  # noqa: S305
        return int.from_bytes(stream[index % 2 * 8 :][:8], "little")

    uniform = (number(pair) % 2**63 + 0.5) / 2**63
    turn = number(half + pair)
    angle = math.pi * (turn - 2**64 if turn >= 2**63 else turn) / 2**63
    direction = math.cos(angle) if position < half else math.sin(angle)
    return math.sqrt(-2 * math.log(uniform)) * direction


@pytest.mark.parametrize("position", [0, 1, 16_383, 16_384, 32_767, 32_768, 65_537, 99_999])
def test_a_draw_is_box_and_muller_over_aes_in_counter_mode(position: int) -> None:
    noise = add_gaussian(torch.zeros(100_000), FINE, [Draw(KEY)])

    expected = expected_normal(KEY, position // BLOCK, position % BLOCK)
    # Off by half a step of the grid, and by one rounding to float32.
    assert float(noise[position]) == pytest.approx(expected, abs=2.0**-20)


def test_the_noise_has_the_moments_of_a_normal() -> None:
    count = 4_000_000
    calibration = Calibration(noise_std=0.5, step=2.0**-24)

    noise = add_gaussian(torch.zeros(count), calibration, [Draw(SystemKeys().draw("test"))])

    # Each bound is 5.5 standard errors of its estimate: a false failure once in 10 million runs.
    error = 5.5 / math.sqrt(count)
    scaled = noise.double() / 0.5
    assert abs(float(scaled.mean())) < error
    assert abs(float(scaled.square().mean()) - 1) < error * math.sqrt(2)
    assert abs(float(scaled.pow(3).mean())) < error * math.sqrt(15)
    assert abs(float(scaled.pow(4).mean()) - 3) < error * math.sqrt(96)
    beyond_three = 0.0026998
    assert abs(float((scaled.abs() > 3).double().mean()) - beyond_three) < error * math.sqrt(
        beyond_three
    )


def test_neighbouring_elements_are_not_correlated() -> None:
    noise = add_gaussian(torch.zeros(1_000_000), FINE, [Draw(SystemKeys().draw("test"))]).double()

    for shift in (1, BLOCK // 2, BLOCK):
        product = float((noise[:-shift] * noise[shift:]).mean())
        assert abs(product) < 5.5 / math.sqrt(len(noise) - shift)


def test_what_comes_out_lies_on_the_grid_whatever_went_in() -> None:
    step = 2.0**-6
    values = torch.randn(50_000, generator=torch.Generator().manual_seed(1))

    noised = add_gaussian(values, Calibration(noise_std=1.0, step=step), [Draw(KEY)])

    assert torch.equal((noised / step).round() * step, noised)


def test_the_last_bits_of_a_value_cannot_show_through() -> None:
    # Both values round to the same grid point, so nothing tells them apart.
    coarse = Calibration(noise_std=1.0, step=2.0**-6)

    left = add_gaussian(torch.full((1000,), 0.5), coarse, [Draw(KEY)])
    right = add_gaussian(torch.full((1000,), 0.5 + 2.0**-9), coarse, [Draw(KEY)])

    assert torch.equal(left, right)


def test_taking_a_draw_out_again_leaves_the_rounded_values_exactly() -> None:
    calibration = Calibration(noise_std=3.0, step=2.0**-10)
    values = torch.tensor([0.25, -1.0, 2.0**-12, 3.0]).repeat(20_000)

    left = add_gaussian(values, calibration, [Draw(KEY), Draw(KEY, sign=-1)])

    assert torch.equal(left, torch.tensor([0.25, -1.0, 0.0, 3.0]).repeat(20_000))


def test_two_draws_have_twice_the_variance() -> None:
    noise = add_gaussian(torch.zeros(400_000), FINE, [Draw(KEY), Draw(KEY[::-1])])

    # Within 5.5 standard errors of sqrt(2).
    assert abs(float(noise.std()) - math.sqrt(2)) < 5.5 * math.sqrt(2) / math.sqrt(800_000)


def test_the_system_gives_a_fresh_key_for_the_same_label() -> None:
    keys = SystemKeys()

    assert keys.draw("round 1") != keys.draw("round 1")
    assert len(keys.draw("round 1")) == KEY_BYTES


def test_calibration_pays_for_the_grid_with_a_thousandth_more_noise() -> None:
    # d = 2^20, sensitivity 1: the step may be 2^-10 / 2^10, and moves neighbours by 2^-10.
    calibration = calibrate(noise_multiplier=2.0, sensitivity=1.0, element_count=1 << 20)

    assert calibration.step == 2.0**-20
    assert calibration.noise_std == 2.0 * (1 + 2.0**-10)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_noise_that_hides_nothing_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="noise_multiplier must be > 0 and finite"):
        calibrate(noise_multiplier=bad, sensitivity=1.0, element_count=1)
    with pytest.raises(ValueError, match="sensitivity must be > 0 and finite"):
        calibrate(noise_multiplier=1.0, sensitivity=bad, element_count=1)


def test_a_short_key_is_refused_before_anything_is_changed() -> None:
    values = torch.ones(4)

    with pytest.raises(ValueError, match="must have 32 bytes, got 16"):
        add_gaussian(values, FINE, [Draw(KEY), Draw(KEY[:16])])

    assert torch.equal(values, torch.ones(4))
