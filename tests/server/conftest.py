"""What the tests of the store share: an empty one, and a round in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from models.plan.plan import Plan, TrainingSettings, VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.text.vocabulary import Vocabulary
from privacy.noise.settings import NoNoise
from server.config.store import StoreSettings
from server.devices.clients import enrol_client
from server.devices.device_certificates import StoredCertificate
from server.machine.answers import Lease
from server.records.attempts import OpenAttempt, open_attempt
from server.records.contributions import Verified, keep_contributions
from server.records.inbox import Inbox
from server.records.store import Store, open_store, start_run
from server.releases.files import NewRelease, ReleaseFolder
from tests.server.postgresql_cluster import PostgresqlCluster

RUN = "ab" * 16
NAMES = ("device-0001", "device-0002", "device-0003")


@pytest.fixture
def store_settings(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> StoreSettings:
    """Return where an empty store lies: SQLite, unless `both_stores.on_both_stores` says else."""
    if getattr(request, "param", "sqlite") == "postgresql":
        # A pause of the machine ends no transaction.
        monkeypatch.setattr("server.records.store.SILENCE_MS", 100_000)
        cluster: PostgresqlCluster = request.getfixturevalue("postgresql")
        return cluster.database()
    return StoreSettings(url=f"sqlite:///{tmp_path / 'store.sqlite'}")


@pytest.fixture
def store(store_settings: StoreSettings) -> Iterator[Store]:
    opened = open_store(store_settings)
    start_run(opened, RUN, seed=1, run_digest=bytes(32), now=1.0)
    yield opened
    opened.close()


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "updates")


@pytest.fixture
def releases(tmp_path: Path) -> ReleaseFolder:
    return ReleaseFolder(tmp_path / "releases")


@pytest.fixture
def enrolled(store: Store) -> tuple[str, ...]:
    """Enrol three clients."""
    with store.write() as connection:
        for name in NAMES:
            given = [certificate_of(name, use) for use in ("tls", "wrapping", "signing")]
            enrol_client(connection, name, given, now=10.0)
    return NAMES


@pytest.fixture
def certificate() -> Callable[[str, str, int], StoredCertificate]:
    """Return a function that makes a stand-in: the store never looks inside a certificate."""
    return certificate_of


@pytest.fixture
def first_round(store: Store, enrolled: tuple[str, ...]) -> OpenAttempt:
    """Open round 1 for all three."""
    opened = OpenAttempt(1, 0, enrolled, bytes(32), opened_at=100.0, deadline_ms=160_000)
    open_attempt(store, opened)
    return opened


@pytest.fixture
def lease_of() -> Callable[[str], Lease]:
    """Return a function that makes a client's lease of round 1."""

    def make(client: str) -> Lease:
        slot = NAMES.index(client)
        return Lease(bytes([slot + 1]) * 16, client, 1, 0, slot, 60.0)

    return make


@pytest.fixture
def keep(store: Store, inbox: Inbox, tmp_path: Path) -> Callable[[Lease, bytes], None]:
    """Return a function that makes an upload and keeps it as the contribution of a lease."""

    def make(lease: Lease, content: bytes) -> None:
        partial = tmp_path / "upload.part"
        partial.write_bytes(content)
        (outcome,) = keep_contributions(
            store,
            inbox,
            [Verified(partial, lease, bytes(16), bytes(32), 7)],
            now=120.0,
        )
        if outcome is not None:
            raise outcome

    return make


@pytest.fixture
def new_release() -> Callable[[int, bytes], NewRelease]:
    """Return a function that makes a round's model; every parameter equals the round's number."""
    settings = GruLmSettings(vocabulary_size=4, hidden_size=2)
    schema = schema_of(settings)
    words = Vocabulary(("<unk>", "<eos>", "good", "morning"))
    plan = Plan(
        run=RUN,
        model=settings,
        schema_sha256=schema.sha256.hex(),
        vocabulary=VocabularySettings(name="words", size=4, sha256=words.sha256.hex()),
        training=TrainingSettings(learning_rate=0.1, batch_size=1, bptt_steps=2),
        privacy=NoNoise(),
        cohort_size=3,
        seed=1,
    )

    def make(round_number: int, previous_sha256: bytes) -> NewRelease:
        return NewRelease(
            round_number=round_number,
            attempt=0,
            plan=plan,
            vocabulary=words,
            parameters=np.full(schema.element_count, round_number, dtype=np.float32),
            previous_sha256=previous_sha256,
            metrics={"perplexity": 100.0 - round_number},
            guarantee="none",
        )

    return make


def certificate_of(client: str, use: str, generation: int = 1) -> StoredCertificate:
    """Return a stand-in for a client's certificate; each generation has its own."""
    der = f"{client} {use} {generation}".encode()
    return StoredCertificate(der.ljust(32, b"."), use, der, not_after=1000.0 * generation)
