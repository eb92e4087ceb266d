"""Hash a payload as a tree of SHA-256 over its chunks, on two threads.

The digest is ``SHA-256(tag | payload_bytes | SHA-256(chunk 0) | SHA-256(chunk 1) | ...)`` with
chunks of 1 MiB. Two different payloads of one digest would be a collision of SHA-256: the tree has
exactly two levels, the length fixes how many leaves there are, and the tag keeps a root from being
read as a leaf. Against hashing from end to end it costs one more hash of 32 bytes a chunk, and it
lets chunks be hashed side by side, and while the next one is still on its way.
"""

import hashlib
import struct
from concurrent.futures import Future, ThreadPoolExecutor

CHUNK_BYTES = 1024 * 1024

_TAG = b"sotto payload tree 1\0"
_THREADS = 2
# Below this, starting threads takes longer than hashing.
_THREADED_CHUNKS = 3


def chunk_count_of(payload_bytes: int) -> int:
    """Return the number of chunks of a payload; an empty payload is one empty chunk."""
    return max(1, -(-payload_bytes // CHUNK_BYTES))


class TreeDigest:
    """Hash chunks as they come; a chunk must not change before `finish` or `abandon`."""

    def __init__(self, payload_bytes: int) -> None:
        self._payload_bytes = payload_bytes
        self._leaves: list[Future[bytes] | bytes] = []
        self._pool: ThreadPoolExecutor | None = None
        if chunk_count_of(payload_bytes) >= _THREADED_CHUNKS:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sotto-digest")

    def add(self, chunk: memoryview) -> None:
        """Hash the next chunk: 1 MiB, or what is left of the payload."""
        if self._pool is None:
            self._leaves.append(_leaf(chunk))
        else:
            self._leaves.append(self._pool.submit(_leaf, chunk))

    def finish(self) -> bytes:
        """Return the digest of all chunks, 32 bytes."""
        root = hashlib.sha256(_TAG + struct.pack("!Q", self._payload_bytes))
        for leaf in self._leaves:
            root.update(leaf if isinstance(leaf, bytes) else leaf.result())
        self.abandon()
        return root.digest()

    def abandon(self) -> None:
        """Let go of threads and chunks; no digest will be asked for any more."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._leaves.clear()


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
