"""The tree digest against its formula, written out without threads."""

import hashlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.sealing.chunk_digest import TreeDigest, chunk_count_of, chunks_of, payload_digest
from tests.privacy.forging import MIB, tree_digest


def pattern(size: int) -> bytes:
    return hashlib.shake_256(b"pattern").digest(size)


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB + 3])
def test_the_digest_is_the_hash_of_the_chunks_hashes(size: int) -> None:
    payload = pattern(size)

    assert payload_digest(memoryview(payload)) == tree_digest(payload)


@pytest.mark.parametrize("size", [0, 1, MIB, 2 * MIB + 1, 9 * MIB + 3])
def test_chunks_hashed_as_they_come_give_the_same_digest(size: int) -> None:
    payload = pattern(size)
    digest = TreeDigest(size)

    for chunk in chunks_of(memoryview(payload)):
        digest.add(chunk)

    assert digest.finish() == tree_digest(payload)


def test_no_thread_outlives_a_digest_that_is_finished_abandoned_or_forgotten() -> None:
    payload = memoryview(pattern(4 * MIB))
    finished, abandoned, forgotten = (TreeDigest(len(payload)) for _ in range(3))
    started = [thread for thread in threading.enumerate() if thread.name == "sotto-digest"]
    for digest in (finished, abandoned, forgotten):
        digest.add(payload[:MIB])

    finished.finish()
    abandoned.abandon()
    del digest, forgotten
    for thread in started:
        thread.join(timeout=60)

    assert len(started) == 3
    assert not any(thread.is_alive() for thread in started)


def test_an_empty_payload_is_one_empty_chunk() -> None:
    leaf = hashlib.sha256(b"").digest()

    assert (
        payload_digest(memoryview(b""))
        == hashlib.sha256(b"sotto payload tree 1\0" + bytes(8) + leaf).digest()
    )


@given(payload=st.binary(max_size=500), position=st.integers(0, 499), bit=st.integers(0, 7))
def test_any_flipped_bit_changes_the_digest(payload: bytes, position: int, bit: int) -> None:
    changed = bytearray(payload or b"\0")
    changed[position % len(changed)] ^= 1 << bit

    assert payload_digest(memoryview(changed)) != payload_digest(memoryview(payload or b"\0"))


def test_chunks_do_not_change_places_unnoticed() -> None:
    payload = pattern(4 * MIB)
    swapped = payload[MIB : 2 * MIB] + payload[:MIB] + payload[2 * MIB :]

    assert payload_digest(memoryview(swapped)) != payload_digest(memoryview(payload))


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (1, 1), (MIB, 1), (MIB + 1, 2), (64 * MIB, 64)]
)
def test_chunks_are_counted_in_mebibytes(size: int, count: int) -> None:
    assert chunk_count_of(size) == count
