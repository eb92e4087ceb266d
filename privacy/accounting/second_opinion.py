"""Epsilon a second time, by the privacy random variables (PRV) of Opacus.

Another algorithm by other people, with its own discretisation and its own error bound: 0.01 of
epsilon is added on top, so that it is an upper bound too.
"""

from collections.abc import Callable

from privacy.accounting.pld import gaussian_mechanisms
from privacy.accounting.prv import NoFigureError, prv_epsilon
from privacy.accounting.tally import Tally

Accountant = Callable[[Tally, float], float]


class UnsoundAccountantError(ValueError):
    """Raised when an accountant is asked for that can report less epsilon than was spent."""


class SecondOpinionError(RuntimeError):
    """Raised when the second accountant came to no figure."""


def epsilon_by_prv(total: Tally, delta: float) -> float:
    """Return ε of all Gaussian releases in a tally at δ, at most about 0.01 too large; no trees.

    Raises:
        SecondOpinionError: If Opacus comes to no finite figure.
    """
    mechanisms = gaussian_mechanisms(total)
    if not mechanisms:
        return 0.0
    try:
        return prv_epsilon(mechanisms, delta)
    except NoFigureError as error:
        raise SecondOpinionError(str(error)) from None


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
