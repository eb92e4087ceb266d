"""How far a released model has memorised planted sentences.

A secret is drawn from a space of sentences that all look alike and is planted in one person's
text. Its exposure compares the model's loss on it with the loss on other sentences of the same
space that were never seen: log2 of the space's size less log2 of the secret's rank. Here the rank
is among a sample of n references, so exposure ends at log2(n + 1) bits.

Exposure is the bits of a guess that the model saves someone who knows the rest of the sentence.
Secrets that were not learned have exposures like -log2 of a uniform number: 1.44 bits on average,
never 0. A model can still remember what no planted sentence looks like.

References:
    [Carlini] Carlini et al., "The Secret Sharer", USENIX Security 2019, arXiv:1802.08232.
"""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from privacy.auditing.scores import AuditError, Scores, checked_scores

LEAST_REFERENCES = 100
UNLEARNED_BITS = 1 / math.log(2)
"""Mean exposure of secrets that were not learned, with many references."""


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """The exposure of planted sentences: each one's bits, their mean, and log2(n + 1), the most.

    ``chance`` is the probability of so large a mean if nothing was learned.
    """

    bits: list[float]
    mean_bits: float
    largest_possible_bits: float
    chance: float


def exposure(secret_losses: ArrayLike, reference_losses: ArrayLike) -> Exposure:
    """Rank secrets among references by loss ([Carlini] section 4, with a sampled space).

    Losses have shapes ``(secrets,)`` and ``(references,)``, in any one unit; references are drawn
    alike and were never planted. Raises AuditError if a loss is not finite, there is no secret, or
    there are fewer than ``LEAST_REFERENCES`` references.
    """
    secrets = checked_scores(secret_losses, "secret losses").ravel()
    references = checked_scores(reference_losses, "reference losses").ravel()
    if not secrets.size or references.size < LEAST_REFERENCES:
        raise AuditError(
            f"exposure needs at least 1 secret and {LEAST_REFERENCES} references, "
            f"got {secrets.size} and {references.size}"
        )
    bits = _bits(secrets, references)
    # -ln of a uniform number is exponential, so that the sum of k is gamma distributed.
    chance = float(special.gammaincc(secrets.size, float(bits.sum()) * math.log(2)))
    return Exposure(
        bits=bits.tolist(),
        mean_bits=float(bits.mean()),
        largest_possible_bits=math.log2(references.size + 1),
        chance=chance,
    )


def _bits(secrets: Scores, references: Scores) -> Scores:
    # A reference with the same loss ranks before the secret: exposure is never overstated.
    ranks = 1 + np.searchsorted(np.sort(references), secrets, side="right")
    bits: Scores = np.log2(references.size + 1) - np.log2(ranks)
    return bits
