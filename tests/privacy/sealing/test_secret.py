import pytest

from privacy.sealing.secret import SealedSecretError, open_secret, seal_secret

KEY, SECRET = bytes(range(32)), b"what the noise is drawn from"


def test_a_secret_opens_with_its_key_and_its_use() -> None:
    assert open_secret(seal_secret(SECRET, KEY, b"tree"), KEY, b"tree") == SECRET


def test_sealing_twice_shows_nothing_in_common() -> None:
    first, second = (seal_secret(SECRET, KEY, b"tree") for _ in range(2))

    assert first[:12] != second[:12]
    assert SECRET not in first


@pytest.mark.parametrize("position", [0, 11, 12, 40, -1])
def test_a_changed_byte_does_not_open(position: int) -> None:
    sealed = bytearray(seal_secret(SECRET, KEY, b"tree"))
    sealed[position] ^= 1

    with pytest.raises(SealedSecretError):
        open_secret(bytes(sealed), KEY, b"tree")


@pytest.mark.parametrize(("key", "use"), [(KEY[::-1], b"tree"), (KEY, b"other")])
def test_another_key_or_use_does_not_open(key: bytes, use: bytes) -> None:
    with pytest.raises(SealedSecretError):
        open_secret(seal_secret(SECRET, KEY, b"tree"), key, use)


@pytest.mark.parametrize("cut", [0, 5, 12, 20])
def test_what_was_cut_short_does_not_open(cut: int) -> None:
    with pytest.raises(SealedSecretError):
        open_secret(seal_secret(SECRET, KEY, b"tree")[:cut], KEY, b"tree")


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="must have 32 bytes, got 16"):
        seal_secret(SECRET, KEY[:16], b"tree")
