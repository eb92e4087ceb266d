"""What one continuous Gaussian says of many devices' shares of discrete Gaussian noise.

Under ``masked`` each device adds discrete Gaussian noise of standard deviation s >= 5 grid steps to
every element, and the noise of h of them counts. Accountants know the continuous mechanism, so its
multiplier is lowered until it proves less than the shares do:

- The sum of h shares is pointwise within e^±τ of one discrete Gaussian of variance h s², where
  τ <= 10 Σ_k exp(-2π² s² k / (k+1)), k from 1 to h-1, for each element (2102.06387, Section 4).
- A discrete Gaussian of variance σ² around a grid point is within e^±η of this: add continuous
  noise of variance σ² - r², then draw a discrete Gaussian of variance r² around the result. Poisson
  summation gives both normalisers within 1 ± 2.01 q, q = exp(-2π² r²), for any centre (Micciancio
  and Regev), so η <= 4.1 q for each element; r² = 3 squared steps is taken here. The second draw
  looks at no data: it is post-processing.

So d elements in T releases cost at most 2 T d (τ + η) beside a continuous Gaussian of standard
deviation sqrt(h s² - 3), whose multiplier is that of the shares times sqrt(1 - 3 / (h s²)): 0.938
of it for one honest share, 0.994 for ten. With q = 2e-26 and τ below 1e-98 the beside is less than
1e-10 for 2^32 elements in 2^17 releases; it is rounded up to 1e-9.

The wrap modulo 2^bits and the unmasking are post-processing too. Rounding to the grid moves a norm;
that is the sensitivity's affair, to which the shares are scaled.

References:
    Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with
        Secure Aggregation", ICML 2021, arXiv:2102.06387.
    Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
        arXiv:2004.00010.
    Micciancio, Regev, "Worst-Case to Average-Case Reductions Based on Gaussian Measures",
        SIAM J. Comput. 37(1), 2007 (the normalisers).
"""

import math

from privacy.accounting.checked_values import check_count, check_noise_multiplier

LEAST_SHARE_STD = 5.0
"""Least standard deviation of one device's share, in grid steps; a coarser grid is refused."""

LOSS_BESIDE = 1e-9
"""What all releases of a run add to ε beside the continuous Gaussian, rounded up."""

_SMOOTHED = 3.0
"""r², in squared grid steps."""


def continuous_multiplier(noise_multiplier: float, honest_contributors: int) -> float:
    """Return the multiplier of a continuous Gaussian that proves no more than honest shares do.

    ``noise_multiplier`` is z: standard deviation of the honest shares' sum over the sensitivity.
    """
    check_noise_multiplier(noise_multiplier)
    check_count(honest_contributors, "honest_contributors")
    steps_squared = honest_contributors * LEAST_SHARE_STD**2
    return noise_multiplier * math.sqrt(1 - _SMOOTHED / steps_squared)
