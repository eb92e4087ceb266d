"""RSA keys that the processes of one run of the tests share: each costs a fifth of a second."""

import os
import tempfile
from itertools import count
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from privacy.identities.keys import make_rsa_key, private_key_pem

SIZE = 96
"""Keys in the pool. A process hands them out in turn, so no test meets one twice."""


class KeyPool:
    """Keys of 3072 bits in the run's temporary folder, made when their turn first comes."""

    def __init__(self, name: str = "rsa") -> None:
        """Hand out keys from the first on; a pool of another name has other keys."""
        self._name = name
        self._turns = count()

    def next_key(self, bits: int = 3072) -> rsa.RSAPrivateKey:
        """Stand in for ``privacy.identities.keys.make_rsa_key``."""
        if bits != 3072:
            return make_rsa_key(bits)
        path = Path(tempfile.gettempdir()) / f"{self._name}-{next(self._turns) % SIZE}.pem"
        if path.exists():
            kept = load_pem_private_key(
                path.read_bytes(), None, unsafe_skip_rsa_key_validation=True
            )
            assert isinstance(kept, rsa.RSAPrivateKey)
            return kept
        key = make_rsa_key()
        half = path.with_suffix(f".{os.getpid()}")
        half.write_bytes(private_key_pem(key))
        half.rename(path)
        return key
