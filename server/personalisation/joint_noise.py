"""Noise what a round teaches a hypernetwork together with what it aggregates.

Under mode ``central`` a round of FedTP lets out two vectors of the same cohort: the aggregate of
the shared tensors, which one person moves by at most Δ_A, and the mean over M places of the
gradients of φ, each clipped to C_φ, which one person moves by at most Δ_G = C_φ/M (twice that for
``replace-one``). Clipping updates does not bound the second: the making can stretch them.

Each of the n = 2 vectors gets Gaussian noise of √2 z times its own sensitivity. Divided by its own
noise, each moves by at most 1/(√2 z), both together by √( (1/(√2 z))² + (1/(√2 z))² ) = 1/z: one
Gaussian mechanism with multiplier z, the one the ledger counts, amplified as any other. φ and the
shared tensors of all rounds follow from the noised vectors. A client's embedding follows from these
and its own updates, and is used for that client alone: everybody else's outcome keeps the guarantee
(joint differential privacy); the table of embeddings itself has none.

References:
    Kearns, Pai, Roth, Ullman, "Mechanism design in large games: incentives and privacy", ITCS 2014,
        arXiv:1207.4084 (joint differential privacy).
"""

from privacy.noise.mode import CalibratedRound
from privacy.noise.secure_gaussian import NoiseKeys

_TAUGHT = "hypernetwork"


def calibrate_round(
    aggregate: float,
    taught: float | None,
    *,
    round_number: int | None,
    keys: NoiseKeys,
    shares_tensors: bool = True,
) -> tuple[CalibratedRound, CalibratedRound | None]:
    """Return the noise's terms for the aggregate and for the gradient that teaches a method.

    ``aggregate`` and ``taught`` are sensitivities, L2 distances; ``taught`` is None if nothing is.
    ``shares_tensors`` tells whether there is an aggregate to noise. Each vector has its own key.

    Raises:
        ValueError: If there is no round number.
    """
    if round_number is None:
        raise ValueError("round_number must be given where the server adds calibrated noise")
    count = 1 if taught is None else 1 + shares_tensors
    return (
        CalibratedRound(round_number, aggregate, keys, vector_count=count),
        None
        if taught is None
        else CalibratedRound(round_number, taught, keys, vector=_TAUGHT, vector_count=count),
    )
