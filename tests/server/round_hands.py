"""A round in hand with a model of a few bytes, and a source of names and nonces that counts."""

from collections.abc import Sequence
from typing import cast

from models.plan.plan import Plan, TrainingSettings, VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from privacy.identities.certificates import Certificates
from privacy.noise.settings import NoNoise
from server.downlink.attempt_in_hand import RoundInHand
from server.downlink.sealed_once import Downlink

MODEL = GruLmSettings(vocabulary_size=3, hidden_size=1)


class CountingSource:
    """Give each nonce once, and choose from the front."""

    def __init__(self) -> None:
        self._count = 0

    def bytes(self, n: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(n, "big")

    def choose(self, population: Sequence[str], k: int) -> list[str]:
        return list(population[:k])

    def flip(self, population: Sequence[str], rate: float) -> list[str]:
        return list(population)


class _NoModel:
    """Stand where nobody fetches."""

    total_bytes = 0


def round_in_hand(round_number: int) -> RoundInHand:
    plan = Plan(
        run="ab" * 16,
        kind="evaluate",
        model=MODEL,
        schema_sha256=schema_of(MODEL).sha256.hex(),
        vocabulary=VocabularySettings(name="english-10k", size=3, sha256="00" * 32),
        training=TrainingSettings(learning_rate=1.0, batch_size=1, bptt_steps=1),
        privacy=NoNoise(),
        cohort_size=2,
        seed=1,
    )
    return RoundInHand(
        plan=plan,
        round_number=round_number,
        attempt=0,
        base_sha256=bytes(32),
        opened_at=0.0,
        deadline_ms=0,
        downlink=cast("Downlink", _NoModel()),  # nobody fetches it here
        coordinator=Certificates(tls=b"", wrapping=b"", signing=b""),
        plan_signature=b"",
    )
