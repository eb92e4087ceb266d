"""Whose noise counts under masks, from what the settings say."""

import pytest

from privacy.noise.masked_settings import MaskedNoise


def masked(honest_share: float, groups: int = 1) -> MaskedNoise:
    return MaskedNoise(
        clipping_norm=1.0,
        noise_multiplier=1.0,
        delta=1e-5,
        epsilon_budget=8.0,
        coordinator_epsilon_budget=8.0,
        adjacency="zero-out",
        honest_share=honest_share,
        groups=groups,
    )


@pytest.mark.parametrize(
    ("share", "groups", "honest"),
    [
        # 0.07 * 100 is 7.000000000000001 in floats, and nobody believes in an eighth device.
        (0.07, 1, 7),
        # At least half of 25 is at least 13.
        (0.5, 4, 13),
        (0.001, 1, 1),
        (1.0, 1, 100),
    ],
)
def test_the_noise_of_the_believed_share_of_the_fewest_contributors_counts(
    share: float, groups: int, honest: int
) -> None:
    assert masked(share, groups).honest_contributors(100) == honest
