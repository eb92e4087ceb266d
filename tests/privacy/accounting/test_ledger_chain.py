"""A ledger that was touched is found out, and the first broken entry is named."""

import hashlib

import pytest

from privacy.accounting.events import LocalRelease, PrivacyEvent, UnprotectedRelease
from privacy.accounting.ledger_chain import (
    LedgerEntry,
    LedgerError,
    LedgerOfAnotherRunError,
    first_head,
    head_of,
    next_entry,
    verify_chain,
)

RUN = "00112233445566778899aabbccddeeff"
OTHER_RUN = "ff" * 16


def ledger(*times_ms: int, run: str = RUN) -> list[LedgerEntry]:
    entries: list[LedgerEntry] = []
    for number, now_ms in enumerate(times_ms, start=1):
        entries.append(
            next_entry(
                entries[-1] if entries else None,
                run=run,
                round_number=number,
                event=LocalRelease(noise_multiplier=float(number)),
                now_ms=now_ms,
            )
        )
    return entries


def test_an_untouched_ledger_gives_its_events_in_order() -> None:
    expected: list[PrivacyEvent] = [LocalRelease(noise_multiplier=float(n)) for n in (1, 2, 3)]

    assert verify_chain(ledger(10, 20, 30), run=RUN) == expected


def test_a_digest_is_that_of_the_bytes_written_down() -> None:
    (entry,) = ledger(258)

    start = hashlib.sha256(b"sotto ledger 1\0" + bytes.fromhex(RUN)).digest()
    numbers = bytes(7) + b"\x01" + bytes(7) + b"\x01" + bytes(6) + b"\x01\x02" + bytes(8)
    event = b'{"event":"local","noise_multiplier":1.0}'
    assert entry.previous_sha256 == start
    assert (
        entry.sha256
        == hashlib.sha256(
            b"sotto ledger entry 1\0" + start + bytes.fromhex(RUN) + numbers + event
        ).digest()
    )


def test_the_head_of_a_ledger_is_its_newest_digest() -> None:
    entries = ledger(10, 20)

    assert head_of(entries, RUN) == entries[-1].sha256
    assert head_of([], RUN) == first_head(RUN)


@pytest.mark.parametrize(
    "change",
    [
        {"round_number": 9},
        {"recorded_ms": 21},
        {"clock_set_back_ms": 1},
        {"event": b'{"event":"local","noise_multiplier":99.0}'},
        {"event": b"{}"},
        {"sha256": bytes(32)},
        {"round_number": -1},
    ],
)
def test_a_changed_entry_is_named(change: dict[str, int | bytes]) -> None:
    entries = ledger(10, 20, 30)
    entries[1] = LedgerEntry(**{**entries[1]._asdict(), **change})

    with pytest.raises(LedgerError, match="ledger entry 2 was changed"):
        verify_chain(entries, run=RUN)


def test_an_entry_changed_together_with_its_digest_breaks_the_next() -> None:
    entries = ledger(10, 20, 30)
    entries[1] = next_entry(
        entries[0],
        run=RUN,
        round_number=2,
        event=UnprotectedRelease(mode="none"),
        now_ms=20,
    )

    with pytest.raises(LedgerError, match="ledger entry 3 does not follow entry 2"):
        verify_chain(entries, run=RUN)


def test_a_dropped_entry_is_named() -> None:
    entries = ledger(10, 20, 30)
    del entries[1]

    with pytest.raises(LedgerError, match="ledger entry 2 is missing or was moved: entry 3"):
        verify_chain(entries, run=RUN)


def test_the_ledger_of_another_run_is_refused() -> None:
    with pytest.raises(LedgerOfAnotherRunError, match=f"run {RUN}"):
        verify_chain(ledger(10, run=OTHER_RUN), run=RUN)


def test_a_clock_set_back_is_recorded_and_the_ledger_goes_on() -> None:
    entries = ledger(10_000, 4_000, 5_000)

    assert [entry.clock_set_back_ms for entry in entries] == [0, 6_000, 0]
    assert len(verify_chain(entries, run=RUN)) == 3


def test_a_writer_that_hides_a_clock_set_back_is_found_out() -> None:
    entries = ledger(10_000, 4_000)
    # As a writer would that had never seen the entry before: digest and all.
    hidden = next_entry(
        entries[0]._replace(recorded_ms=0),
        run=RUN,
        round_number=2,
        event=LocalRelease(noise_multiplier=2.0),
        now_ms=4_000,
    )

    with pytest.raises(LedgerError, match="entry 2 must say by how much the clock was set back"):
        verify_chain([entries[0], hidden], run=RUN)


def test_entries_cut_off_at_the_end_are_missed_by_a_head_kept_elsewhere() -> None:
    entries = ledger(10, 20, 30)
    head = entries[-1].sha256.hex()

    assert len(verify_chain(entries, run=RUN, head=head.upper())) == 3
    # The chain alone cannot tell.
    assert len(verify_chain(entries[:2], run=RUN)) == 2
    with pytest.raises(LedgerError, match="ledger ends with entry 2"):
        verify_chain(entries[:2], run=RUN, head=head)
    with pytest.raises(LedgerError, match="ledger ends with entry 0"):
        verify_chain([], run=RUN, head=head)
