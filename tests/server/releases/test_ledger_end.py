"""Entries cut off at the ledger's end are missed, by what the store and the releases note."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, text

from privacy.accounting.events import EvaluationRelease, GaussianRelease, LocalRelease
from privacy.accounting.ledger_chain import LedgerError
from server.records.attempts import OpenAttempt, open_attempt
from server.records.ledger import ledger_events, note_evaluation, prepare_entry
from server.records.store import Store
from server.records.tables import attempts, ledger
from server.records.tables import releases as released
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.publishing import NO_PREVIOUS, release_round
from tests.server.both_stores import on_both_stores

RUN = "ab" * 16
NOISED = GaussianRelease(noise_multiplier=1.5, adjacency="zero-out", sampling=None)
EVALUATED = EvaluationRelease(noise_multiplier=3.0, adjacency="zero-out", sampling=None)
SENT = LocalRelease(noise_multiplier=9.0)
MakeRelease = Callable[[int, bytes], NewRelease]


@pytest.fixture
def three_rounds(store: Store, releases: ReleaseFolder, new_release: MakeRelease) -> Store:
    """Release the initial parameters and three rounds, each with its entry."""
    previous = NO_PREVIOUS
    for number in range(4):
        new = new_release(number, previous)
        if number:
            entry = prepare_entry(store, NOISED, run=RUN, round_number=number, now=number)
            new = replace(new, entry=entry)
        record = release_round(store, releases, new, None, opened_at=1.0, now=2.0)
        previous = bytes.fromhex(record.parameters_sha256)
    return store


def dropped(store: Store, table: Any, column: str, above: int) -> None:
    with store.write() as connection:
        connection.execute(delete(table).where(table.c[column] > above))


@on_both_stores
def test_a_whole_ledger_holds_the_newest_release(
    three_rounds: Store, releases: ReleaseFolder
) -> None:
    assert ledger_events(three_rounds, RUN, releases.newest_head()) == [NOISED] * 3


@on_both_stores
def test_two_newest_rows_that_were_deleted_are_missed(three_rounds: Store) -> None:
    dropped(three_rounds, ledger, "sequence", above=1)

    with pytest.raises(LedgerError, match=r"ends with entry 1 and lacks .* rounds 2 to 3, .* not"):
        ledger_events(three_rounds, RUN)


@on_both_stores
def test_a_store_that_is_older_than_the_releases_is_told_apart(
    three_rounds: Store, releases: ReleaseFolder
) -> None:
    # As a dump made after round 2 would hold them: whole in itself.
    dropped(three_rounds, ledger, "sequence", above=2)
    dropped(three_rounds, released, "round_number", above=2)

    assert ledger_events(three_rounds, RUN) == [NOISED] * 2
    with pytest.raises(LedgerError, match=r"ends with entry 2 and lacks .* round 3, .* start_from"):
        ledger_events(three_rounds, RUN, releases.newest_head())


@on_both_stores
def test_the_entry_of_an_attempt_that_was_not_released_is_missed(three_rounds: Store) -> None:
    entry = prepare_entry(three_rounds, SENT, run=RUN, round_number=4, now=4)
    opened = OpenAttempt(4, 0, (), bytes(32), opened_at=4.0, deadline_ms=9000)
    open_attempt(three_rounds, opened, entry)
    assert ledger_events(three_rounds, RUN) == [*[NOISED] * 3, SENT]

    dropped(three_rounds, ledger, "sequence", above=3)

    with pytest.raises(LedgerError, match="ends with entry 3 and lacks the newest of round 4"):
        ledger_events(three_rounds, RUN)
    # A store of before that attempt knows nothing of it, and is whole.
    dropped(three_rounds, attempts, "round_number", above=3)
    assert ledger_events(three_rounds, RUN) == [NOISED] * 3


@on_both_stores
def test_the_entry_of_an_evaluation_after_the_newest_release_is_missed(
    three_rounds: Store,
) -> None:
    entry = prepare_entry(three_rounds, EVALUATED, run=RUN, round_number=3, now=4)
    with three_rounds.write() as connection:
        note_evaluation(connection, 3, entry)

    dropped(three_rounds, ledger, "sequence", above=3)

    with pytest.raises(LedgerError, match="ends with entry 3 and lacks the newest of round 3"):
        ledger_events(three_rounds, RUN)


@on_both_stores
def test_what_an_older_sotto_released_is_held_against_its_own_record(
    three_rounds: Store, releases: ReleaseFolder
) -> None:
    with three_rounds.write() as connection:
        connection.execute(text("UPDATE releases SET ledger_sha256 = NULL"))
    assert ledger_events(three_rounds, RUN, releases.newest_head()) == [NOISED] * 3

    dropped(three_rounds, ledger, "sequence", above=2)

    with pytest.raises(LedgerError, match="ends with entry 2 and lacks the newest of round 3"):
        ledger_events(three_rounds, RUN, releases.newest_head())


@on_both_stores
def test_an_entry_without_its_digest_is_named(three_rounds: Store) -> None:
    with three_rounds.write() as connection:
        connection.execute(text("CREATE TABLE edited AS SELECT * FROM ledger"))
        connection.execute(text("UPDATE edited SET sha256 = NULL WHERE sequence = 2"))
        connection.execute(text("DROP TABLE ledger"))
        connection.execute(text("ALTER TABLE edited RENAME TO ledger"))

    with pytest.raises(LedgerError, match="ledger entry 2 was changed"):
        ledger_events(three_rounds, RUN)


def test_text_in_the_place_of_a_digest_is_named(three_rounds: Store) -> None:
    with three_rounds.write() as connection:
        connection.execute(text("UPDATE ledger SET sha256 = 'none' WHERE sequence = 2"))

    with pytest.raises(LedgerError, match="ledger entry 2 was changed"):
        ledger_events(three_rounds, RUN)
