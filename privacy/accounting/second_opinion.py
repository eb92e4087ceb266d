"""Epsilon a second time, by the privacy random variables (PRV) of Opacus.

Another algorithm by other people than PLD, with its own discretisation and its own error bound:
0.01 of epsilon is added on top, so that it is an upper bound too. Opacus imports torch, costs two
seconds and 340 MB, and is loaded only when this is called.

References:
    Gopi, Lee, Wutschitz, "Numerical Composition of Differential Privacy", NeurIPS 2021,
        arXiv:2106.02848.
"""

import math
import warnings
from collections.abc import Sequence


class UnsoundAccountantError(ValueError):
    """Raised when an accountant is asked for that can report less epsilon than was spent."""


class NoFigureError(RuntimeError):
    """Raised when Opacus came to no finite figure."""


def prv_epsilon(mechanisms: Sequence[tuple[float, float, int]], delta: float) -> float:
    """Return ε at δ in (0, 1) of Gaussian mechanisms (z, q, times) together.

    At most about 0.01 too large. Raises NoFigureError if Opacus comes to no finite figure.
    """
    if not mechanisms:
        return 0.0
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


def check_second_opinion(name: str) -> None:
    """Refuse a second accountant other than ``prv``, and unsound ones with the reason."""
    if name == "gdp":
        raise UnsoundAccountantError(
            "second opinion gdp is refused: its central limit approximation understates epsilon "
            "(0.49 where at least 2.09 is spent: z = 0.6, q = 0.001, 1,000 rounds, delta 1e-6); "
            "use prv"
        )
    if name != "prv":
        raise ValueError(f"second opinion must be prv, got {name!r}")
