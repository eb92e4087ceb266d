"""RSA keys that the processes of one run of the tests share.

What costs is a prime, a tenth of a second, so keys are made of the pairs of a few primes. Two such
keys may give each other away by their common prime, which no test looks for.
"""

import os
import tempfile
from itertools import count
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from privacy.identities.keys import make_rsa_key, private_key_pem

PAIRS = [(lower, upper) for upper in range(16) for lower in range(upper)]
"""Primes of each key, by their number. A process takes keys in turn, so no test meets one twice."""


class KeyPool:
    """Keys whose primes lie in the run's temporary folder, made when their turn first comes."""

    def __init__(self, name: str = "rsa") -> None:
        """Hand out keys from the first on; a pool of another name has other keys."""
        self._name = name
        self._turns = count()
        self._primes: dict[tuple[int, int], tuple[int, int]] = {}

    def next_key(self, bits: int = 3072) -> rsa.RSAPrivateKey:
        """Stand in for ``privacy.identities.keys.make_rsa_key``."""
        lower, upper = PAIRS[next(self._turns) % len(PAIRS)]
        return _key_of(self._prime(lower, bits), self._prime(upper, bits))

    def _prime(self, number: int, bits: int) -> int:
        """Return a prime of half as many bits; two come from one key of OpenSSL's."""
        made = number // 2, bits
        if made not in self._primes:
            self._primes[made] = self._two_primes(*made)
        return self._primes[made][number % 2]

    def _two_primes(self, number: int, bits: int) -> tuple[int, int]:
        path = Path(tempfile.gettempdir()) / f"{self._name}-{bits}-{number}.pem"
        if path.exists():
            key = load_pem_private_key(path.read_bytes(), None, unsafe_skip_rsa_key_validation=True)
            assert isinstance(key, rsa.RSAPrivateKey)
        else:
            key = make_rsa_key(bits)
            half = path.with_suffix(f".{os.getpid()}")
            half.write_bytes(private_key_pem(key))
            half.rename(path)
        numbers = key.private_numbers()
        return numbers.p, numbers.q


def _key_of(p: int, q: int) -> rsa.RSAPrivateKey:
    """Return the key of two primes.

    It has all of its bits, since OpenSSL's primes are above half a power of two by √2 (FIPS 186-5,
    A.1.3).
    """
    public = rsa.RSAPublicNumbers(65537, p * q)
    d = rsa.rsa_recover_private_exponent(public.e, p, q)
    parts = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    numbers = rsa.RSAPrivateNumbers(p, q, d, *parts, public)
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)
