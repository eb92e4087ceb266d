import math

import numpy as np
import pytest

from privacy.auditing.exposure import UNLEARNED_BITS, exposure
from privacy.auditing.scores import AuditError


def test_exposure_counts_the_references_that_are_likelier() -> None:
    references = np.arange(127.0)

    # Ranks 1, 2, 64 and 128 of 128: 7 - log2(rank) bits. Equal losses rank behind.
    found = exposure([-1.0, 0.0, 62.5, 500.0], references)

    assert found.bits == [7.0, 6.0, 1.0, 0.0]
    assert found.mean_bits == 3.5
    assert found.largest_possible_bits == 7.0


def test_one_learned_secret_has_the_chance_of_its_rank() -> None:
    # For one secret -ln u > x has chance e^-x: first of 128 has chance 1/128.
    assert exposure([-1.0], np.arange(127.0)).chance == pytest.approx(1 / 128)


def test_secrets_that_were_not_learned_have_the_exposure_of_chance() -> None:
    generator = np.random.default_rng(3)

    found = exposure(generator.random(2000), generator.random(4000))

    # -log2 of a uniform number: mean and standard deviation 1.44, so 0.032 over 2000.
    assert found.mean_bits == pytest.approx(UNLEARNED_BITS, abs=0.15)
    assert 1e-3 < found.chance < 0.999


def test_what_cannot_be_ranked_is_refused() -> None:
    with pytest.raises(AuditError, match="secret losses must be finite, 1 of 1"):
        exposure([math.inf], np.zeros(200))
    with pytest.raises(AuditError, match="at least 1 secret and 100 references, got 1 and 99"):
        exposure([1.0], np.zeros(99))
