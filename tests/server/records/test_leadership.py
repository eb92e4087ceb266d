"""One process leads at a time, and a transaction of one that no longer does is refused."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event

import pytest
from sqlalchemy import create_engine, insert, select, text
from sqlalchemy.exc import InternalError

from server.config.store import StoreSettings
from server.records import leadership as module
from server.records import store as store_module
from server.records.leadership import Leadership, ask_leader, current_leader, last_leader
from server.records.store import SILENCE_MS, Store, open_store
from server.records.tables import clients
from server.records.tables import leadership as leaders
from server.records.tenure import LeadershipLostError, Tenure
from tests.server.postgresql_cluster import PostgresqlCluster

pytestmark = pytest.mark.xdist_group("postgresql")


@pytest.fixture
def settings(postgresql: PostgresqlCluster) -> StoreSettings:
    return postgresql.database()


Candidate = tuple[Leadership, Store]
Stand = Callable[..., Candidate]


@pytest.fixture
def stand(settings: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """Return a function that makes candidates for one store."""
    monkeypatch.setattr(module, "BEAT_S", 0.05)
    # A pause of the machine ends no turn and no transaction.
    monkeypatch.setattr(module, "PATIENCE_S", 90.0)
    for each in (module, store_module):
        monkeypatch.setattr(each, "SILENCE_MS", 100_000)
    made: list[Candidate] = []

    def make(holder: str, **callbacks: object) -> Candidate:
        store = open_store(settings)
        made.append((Leadership(settings, store, holder, **callbacks), store))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for candidate, store in made:
        candidate.close()
        store.close()


def lead_soon(candidate: Leadership) -> Tenure:
    """Lead as soon as the database has noticed that a session ended."""
    deadline = time.monotonic() + 60
    while (tenure := candidate.try_lead()) is None:
        assert time.monotonic() < deadline
    return tenure


def enrol(store: Store, name: str) -> None:
    with store.write() as connection:
        connection.execute(insert(clients).values(name=name, enrolled_at=1.0))


def names(store: Store) -> list[str]:
    with store.read() as connection:
        return list(connection.execute(select(clients.c.name)).scalars())


def test_one_leads_and_the_next_one_does_in_the_next_term(stand: Stand) -> None:
    (first, store), (second, _) = stand("a.example"), stand("b.example")

    tenure = first.try_lead()

    assert tenure is not None
    assert tenure.term == 1
    assert second.try_lead() is None
    leader = current_leader(store)
    assert leader is not None
    assert (leader.holder, leader.term) == ("a.example", 1)
    assert leader.since == pytest.approx(time.time(), abs=60)
    first.close()
    assert lead_soon(second).term == 2
    second.close()
    deadline = time.monotonic() + 60
    while current_leader(store) is not None:
        assert time.monotonic() < deadline
    last = last_leader(store)
    assert last is not None
    assert last.holder == "b.example"


def test_a_transaction_of_an_earlier_term_is_refused_and_the_owner_is_told(stand: Stand) -> None:
    told: list[str] = []
    first, store = stand("a.example", on_lost=told.append)
    assert first.try_lead() is not None
    enrol(store, "before")
    with store.read() as connection:
        # As by whoever leads after this process fell silent.
        connection.execute(leaders.update().values(term=2))
        connection.commit()

    with pytest.raises(LeadershipLostError, match="the term is 2, and was 1 here"):
        enrol(store, "after")

    assert names(store) == ["before"]
    assert len(told) == 1
    with pytest.raises(LeadershipLostError):
        first.check()


def test_whoever_raises_the_term_waits_for_the_transaction_that_was_begun(stand: Stand) -> None:
    (first, store), (second, other) = stand("a.example"), stand("b.example")
    assert first.try_lead() is not None

    with ThreadPoolExecutor(1) as pool:
        with store.write() as connection:
            connection.execute(insert(clients).values(name="begun", enrolled_at=1.0))
            first.close()
            following = pool.submit(lead_soon, second)
            assert wait([following], timeout=0.3).not_done
        tenure = following.result(60)

    assert tenure.term == 2
    assert names(other) == ["begun"]


def test_a_process_that_stops_in_a_transaction_loses_it_and_the_writers_lock(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, store), (_, other) = stand("a.example"), stand("b.example")
    # In the sessions that this store opens from here on, and in no other.
    monkeypatch.setattr(store_module, "SILENCE_MS", 1_000)
    store.close()

    with pytest.raises(InternalError, match="idle-in-transaction"), store.write() as connection:
        connection.execute(insert(clients).values(name="stopped", enrolled_at=1.0))
        enrol(other, "next")

    assert names(other) == ["next"]


def test_a_session_that_breaks_ends_the_turn(stand: Stand) -> None:
    lost = Event()
    first, store = stand("a.example", on_lost=lambda _: lost.set())
    tenure = first.try_lead()
    assert tenure is not None
    with store.read() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND "
                "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        )

    assert lost.wait(60)

    with pytest.raises(LeadershipLostError, match="connection that held the leadership broke"):
        enrol(store, "late")


def test_a_pool_that_lends_another_session_ends_the_turn(
    stand: Stand, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Event()
    first, store = stand("a.example", on_lost=lambda _: lost.set())
    assert first.try_lead() is not None
    engine = create_engine(settings.url)
    with engine.connect() as other:
        monkeypatch.setattr(first, "_session", other)

        assert lost.wait(60)

        monkeypatch.undo()
    engine.dispose()
    with pytest.raises(LeadershipLostError, match="a connection pool must lend whole sessions"):
        enrol(store, "late")


def test_a_leader_that_gets_no_answer_stops_by_its_own_clock(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, store = stand("a.example")
    # It asks no more by itself: an answer would count at the later time too.
    monkeypatch.setattr(module, "BEAT_S", 100.0)
    assert first.try_lead() is not None
    asked_at = module._now()
    monkeypatch.setattr(module, "_now", lambda: asked_at + module.PATIENCE_S + 1)

    with pytest.raises(LeadershipLostError, match="has not answered for 90 s"):
        enrol(store, "late")

    monkeypatch.undo()
    assert names(store) == []


def test_a_leader_gives_up_before_the_database_does() -> None:
    assert module.PATIENCE_S + module.BEAT_S <= SILENCE_MS / 1000


def test_the_leader_hears_the_word_that_it_is_asked_for(stand: Stand) -> None:
    heard: list[str] = []
    first, store = stand("a.example", on_asked=heard.append)
    assert first.try_lead() is not None

    ask_leader(store, "abc")

    deadline = time.monotonic() + 60
    while not heard and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard == ["abc"]
