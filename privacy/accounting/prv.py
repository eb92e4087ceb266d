"""Epsilon by the privacy random variables (PRV) of Opacus, the upper end of its error.

Opacus imports torch, costs two seconds and 340 MB, and is loaded only when this is called.

References:
    Gopi, Lee, Wutschitz, "Numerical Composition of Differential Privacy", NeurIPS 2021,
        arXiv:2106.02848.
"""

import math
import warnings
from collections.abc import Sequence


class NoFigureError(RuntimeError):
    """Raised when Opacus came to no finite figure."""


def prv_epsilon(mechanisms: Sequence[tuple[float, float, int]], delta: float) -> float:
    """Return ε at δ in (0, 1) of at least one Gaussian mechanism (z, q, times) together.

    Raises:
        NoFigureError: If Opacus comes to no finite figure.
    """
    with warnings.catch_warnings():
        # At q = 1 a logarithm of 0 is met and handled; near the tails integrals warn.
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant

        accountant = PRVAccountant()
        accountant.history = list(mechanisms)
        try:
            epsilon = float(accountant.get_epsilon(delta))
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise NoFigureError(f"Opacus PRV came to no figure: {error}") from None
    if not math.isfinite(epsilon):
        raise NoFigureError(f"Opacus PRV came to no figure: it gave {epsilon}")
    return epsilon
