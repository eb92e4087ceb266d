"""Take the processor time of each stage that sealing adds to a stream, one thread at a time."""

import os
import statistics
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privacy.sealing.chunk_digest import CHUNK_BYTES, TreeDigest, chunks_of
from privacy.sealing.header import HEADER_BYTES, TAG_BYTES

_RUNS = 5


def stage_core_ms(payload: memoryview) -> dict[str, float]:
    """Return the core-milliseconds of hashing, encrypting, decrypting and copying a payload once.

    Memory is made beforehand and used in every run, as the product does.
    """
    cipher, header = AESGCM(os.urandom(32)), bytes(HEADER_BYTES)
    chunks = chunks_of(payload)
    nonces = [index.to_bytes(12, "big") for index in range(len(chunks))]
    sealed = [memoryview(bytearray(len(chunk) + TAG_BYTES)) for chunk in chunks]
    opened = memoryview(bytearray(CHUNK_BYTES))

    def hash_once() -> None:
        digest = TreeDigest(len(payload))
        for chunk in chunks:
            digest.add(chunk)
        digest.finish()

    def encrypt_once() -> None:
        for nonce, chunk, target in zip(nonces, chunks, sealed, strict=True):
            cipher.encrypt_into(nonce, chunk, header, target)

    def decrypt_once() -> None:
        for nonce, chunk in zip(nonces, sealed, strict=True):
            cipher.decrypt_into(nonce, chunk, header, opened[: len(chunk) - TAG_BYTES])

    def copy_once() -> None:
        for chunk in chunks:
            opened[: len(chunk)] = chunk

    stages = {
        "hash": hash_once,
        "encrypt": encrypt_once,
        "decrypt": decrypt_once,
        "copy": copy_once,
    }
    return {name: _core_ms(stage) for name, stage in stages.items()}


def _core_ms(stage: Callable[[], None]) -> float:
    times = []
    for _ in range(1 + _RUNS):
        start = time.process_time()
        stage()
        times.append(time.process_time() - start)
    return statistics.median(times[1:]) * 1e3
