"""Settings of a client's Gaussian processes: kernel and sampling. No torch."""

import math

import msgspec

from models.settings.bounds import check_at_least, check_positive


class GaussianProcessSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The settings of every binary Gaussian process of a client's tree; the authors' values.

    Attributes:
        output_scale: Prior variance of the latent function, > 0.
        length_scale: Length scale of the RBF kernel, at least 0.01; features have length 1, so no
            two are more than 2 apart.
        jitter: Added to the variance of each known point, > 0.
        chain_count: Gibbs chains side by side while training.
        evaluation_chain_count: The same while predicting.
        step_count: Gibbs steps of each chain.
    """

    output_scale: float = 8.0
    length_scale: float = 1.0
    jitter: float = 1e-3
    chain_count: int = 20
    evaluation_chain_count: int = 30
    step_count: int = 5

    def __post_init__(self) -> None:
        check_positive(self, "output_scale", "jitter")
        if not 0.01 <= self.length_scale < math.inf:
            raise ValueError(f"length_scale must be >= 0.01 and finite, got {self.length_scale}")
        check_at_least(self, 1, "chain_count", "evaluation_chain_count", "step_count")
