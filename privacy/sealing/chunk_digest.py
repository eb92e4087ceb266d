"""The digest of a payload: a tree of SHA-256 over its chunks, hashed on two threads.

The digest is ``SHA-256(tag | payload_bytes | SHA-256(chunk 0) | SHA-256(chunk 1) | ...)`` with
chunks of 1 MiB. Two different payloads of one digest would be a collision of SHA-256: the tree has
exactly two levels, the length fixes how many leaves there are, and the tag keeps a root from being
read as a leaf. Against hashing from end to end it costs one more hash of 32 bytes a chunk, and it
lets chunks be hashed side by side, and while the next one is still on its way.
"""

import hashlib
import struct
import weakref
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeAlias

CHUNK_BYTES = 1024 * 1024

_TAG = b"sotto payload tree 1\0"
# Below this, starting threads takes longer than hashing.
_THREADED_CHUNKS = 3
_MOST_WAITING = 2

_Waiting: TypeAlias = "SimpleQueue[tuple[int, memoryview] | None]"


def chunk_count_of(payload_bytes: int) -> int:
    """Return the number of chunks of a payload; an empty payload is one empty chunk."""
    return max(1, -(-payload_bytes // CHUNK_BYTES))


class TreeDigest:
    """A digest of chunks as they come; a chunk must not change before `finish` or `abandon`.

    A second thread hashes while the caller makes the next chunk. When it falls behind, the caller
    hashes too, so that chunks that come fast keep two threads busy and slow ones cost one.
    """

    def __init__(self, payload_bytes: int) -> None:
        self._payload_bytes = payload_bytes
        self._leaves: list[bytes] = []
        self._waiting: _Waiting = SimpleQueue()
        self._helper: Thread | None = None
        if chunk_count_of(payload_bytes) >= _THREADED_CHUNKS:
            work = (self._waiting, self._leaves)
            self._helper = Thread(target=_hash_waiting, args=work, name="sotto-digest", daemon=True)
            self._helper.start()
            # A caller that forgets to end this must not leave the thread behind.
            self._dismiss = weakref.finalize(self, self._waiting.put, None)

    def add(self, chunk: memoryview) -> None:
        """Hash the next chunk: 1 MiB, or what is left of the payload."""
        index = len(self._leaves)
        self._leaves.append(b"")
        if self._helper is None or self._waiting.qsize() >= _MOST_WAITING:
            self._leaves[index] = _leaf(chunk)
        else:
            self._waiting.put((index, chunk))

    def finish(self) -> bytes:
        """Return the digest of all chunks, 32 bytes."""
        for index, chunk in self._left():
            self._leaves[index] = _leaf(chunk)
        self._end()
        size = struct.pack("!Q", self._payload_bytes)
        return hashlib.sha256(_TAG + size + b"".join(self._leaves)).digest()

    def abandon(self) -> None:
        """Let go of thread and chunks; no digest will be asked for any more."""
        for _ in self._left():
            pass
        self._end()

    def _left(self) -> Iterator[tuple[int, memoryview]]:
        with suppress(Empty):
            while waiting := self._waiting.get_nowait():
                yield waiting

    def _end(self) -> None:
        if self._helper is not None:
            self._dismiss()
            self._helper.join()


def payload_digest(payload: memoryview) -> bytes:
    """Return the digest of a whole payload, 32 bytes."""
    digest = TreeDigest(len(payload))
    for chunk in chunks_of(payload):
        digest.add(chunk)
    return digest.finish()


def chunks_of(payload: memoryview) -> list[memoryview]:
    """Cut a payload into views of 1 MiB, without copying; the last may be shorter."""
    count = chunk_count_of(len(payload))
    return [payload[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES] for i in range(count)]


def _leaf(chunk: memoryview) -> bytes:
    return hashlib.sha256(chunk).digest()


def _hash_waiting(waiting: _Waiting, leaves: list[bytes]) -> None:
    while item := waiting.get():
        index, chunk = item
        leaves[index] = _leaf(chunk)
