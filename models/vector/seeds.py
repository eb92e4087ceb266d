"""Derive the seed of one client's work in one round from the seed of the run. No torch.

The seed depends on names and numbers only, so a simulated and a deployed client draw alike, and
neither the order of clients nor the number of workers matters.
"""

import hashlib

SEED_BITS = 63


def growth_seed(run_seed: int, stage: int) -> int:
    """Return the seed of the layers that a stage of growth, from 2, adds, in [0, 2^63)."""
    return _seed_of(f"{run_seed}/growth/{stage}")


def client_seed(
    run_seed: int, round_number: int, client_name: str, *, purpose: str = "data"
) -> int:
    """Return the seed of one client in one round, from 1, in [0, 2^63).

    Two purposes never share a stream of numbers.
    """
    if round_number < 1:
        raise ValueError(f"round_number must be >= 1, got {round_number}")
    if not client_name:
        raise ValueError("client_name must not be empty")
    # A name may hold any character: its length keeps two different tuples from reading alike.
    text = f"{run_seed}/{round_number}/{len(client_name)}/{client_name}/{purpose}"
    return _seed_of(text)


def _seed_of(text: str) -> int:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "little") >> (64 - SEED_BITS)
