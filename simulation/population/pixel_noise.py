"""Give each client's camera its own noise: the ladder from a clean one to the noisiest.

FedTP's code adds the noise after normalisation and clamps to [0, 255], which sets every
darker-than-mean pixel to zero and makes σ = 20 twenty standard deviations. Here noise is added in
pixel levels and clamped there, before normalisation.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV: clients with noise of different strength.
"""

import math

import torch

from models.tasks.image_classification import LabelledImages

_WHITE = 255


def noise_level(place: int, client_count: int, largest: float) -> float:
    """Return a client's σ in pixel levels: ``largest`` times i/(n - 1) for the i-th of n, from 0.

    Raises:
        ValueError: If ``largest`` is negative or not finite.
    """
    if not 0 <= largest < math.inf:
        raise ValueError(f"the largest pixel noise must be >= 0 and finite, got {largest}")
    return largest * place / max(client_count - 1, 1)


def with_pixel_noise(
    images: LabelledImages, level: float, *, generator: torch.Generator
) -> LabelledImages:
    """Return the images with N(0, ``level``²) added, rounded and clamped to levels 0 to 255."""
    if level == 0:
        return images
    noise = torch.randn(images.pixels.shape, generator=generator) * level
    noisy = (images.pixels + noise).round_().clamp_(0, _WHITE).to(torch.uint8)
    return LabelledImages(noisy, images.labels)
