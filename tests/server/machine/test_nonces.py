"""Nonces that survive a restart and tell nobody anything."""

from itertools import product

import pytest

from server.machine.nonces import NONCE_BYTES, derived_nonces


def test_equal_leases_have_equal_nonces_and_others_have_others() -> None:
    first, again = derived_nonces(bytes(32)), derived_nonces(bytes(32))
    leases = list(product((1, 11), (0, 1), ("a", "1/a", "device-0001"), (0, 1)))

    nonces = [first(*lease) for lease in leases]

    assert nonces == [again(*lease) for lease in leases]
    assert len(set(nonces)) == len(leases)
    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}


def test_another_secret_gives_other_nonces() -> None:
    assert derived_nonces(bytes(32))(1, 0, "a", 0) != derived_nonces(b"x" * 32)(1, 0, "a", 0)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="must have 32 bytes, got 31"):
        derived_nonces(bytes(31))
