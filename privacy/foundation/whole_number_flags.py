"""Whole numbers of a command line, refused with the rule where something else was typed.

``int`` as an argument's type would let argparse name Python's function in what it tells.
"""

import argparse


def at_least_one(text: str) -> int:
    """Read one number; ArgumentTypeError if it is no whole number, or below 1."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 on, got {text!r}"
        ) from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be >= 1, got {number}")
    return number


def seed_list(text: str) -> list[int]:
    """Read the seeds of several runs: whole numbers with commas; else ArgumentTypeError."""
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be whole numbers with commas between them, such as 1,2,3; got {text!r}"
        ) from None
