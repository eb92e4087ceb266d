import hashlib

from models.vector.base_digest import base_digest

SHARED, GENERATED = b"s" * 32, b"g" * 32


def test_without_a_generated_part_the_shared_parameters_are_the_base() -> None:
    assert base_digest(SHARED, None) == SHARED


def test_a_generated_part_is_hashed_behind_the_shared_one() -> None:
    expected = hashlib.sha256(b"sotto base of two parts 1\0" + SHARED + GENERATED).digest()

    assert base_digest(SHARED, GENERATED) == expected
    assert base_digest(GENERATED, SHARED) != expected
