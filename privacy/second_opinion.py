"""Compute epsilon a second time, by the privacy random variables (PRV) of Opacus.

Another algorithm by other people, with its own discretisation and its own error bound: 0.01 of
epsilon is added on top, so that it is an upper bound too. Opacus imports torch and takes seconds
to load; only this module asks for it.

References:
    Gopi, Lee, Wutschitz, "Numerical Composition of Differential Privacy", NeurIPS 2021,
        arXiv:2106.02848.
"""

import math
import warnings
from collections.abc import Callable

from privacy.loss_distribution import gaussian_mechanisms
from privacy.tally import Tally

Accountant = Callable[[Tally, float], float]


class UnsoundAccountantError(ValueError):
    """Raised when an accountant is asked for that can report less epsilon than was spent."""


class SecondOpinionError(RuntimeError):
    """Raised when the second accountant came to no figure."""


def epsilon_by_prv(total: Tally, delta: float) -> float:
    """Return ε of all Gaussian releases in a tally at ``delta``, at most about 0.01 too large.

    Args:
        total: What was released; its trees are not looked at.
        delta: δ in (0, 1).

    Raises:
        SecondOpinionError: If Opacus comes to no finite figure.
    """
    mechanisms = gaussian_mechanisms(total)
    if not mechanisms:
        return 0.0
    with warnings.catch_warnings():
        # At q = 1 a logarithm of 0 is met and handled; near the tails integrals warn.
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant

        accountant = PRVAccountant()
        accountant.history = mechanisms
        try:
            epsilon = float(accountant.get_epsilon(delta))
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise SecondOpinionError(f"Opacus PRV came to no figure: {error}") from None
    if not math.isfinite(epsilon):
        raise SecondOpinionError(f"Opacus PRV came to no figure: it gave {epsilon}")
    return epsilon


def accountant_named(name: str) -> Accountant:
    """Return an accountant for a second opinion by its name.

    Raises:
        UnsoundAccountantError: For Opacus' ``gdp``.
        ValueError: If there is no such accountant.
    """
    if name == "prv":
        return epsilon_by_prv
    if name == "gdp":
        raise UnsoundAccountantError(
            "second opinion gdp is refused: its central limit approximation understates epsilon "
            "(0.49 where at least 2.09 is spent: z = 0.6, q = 0.001, 1,000 rounds, delta 1e-6); "
            "use prv"
        )
    raise ValueError(f"second opinion must be prv, got {name!r}")
