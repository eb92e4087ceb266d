"""Make the entries of a round in the privacy ledger: for its release, for each attempt, or both.

If the coordinator draws the noise, a round shows something when its model is released. Under
``local`` the coordinator itself sees a noised update of each drawn device, and under ``masked`` it
may unmask a noised sum, whatever comes of the attempt. So every attempt is paid for before its
first lease. Under ``local`` a release then shows nothing more. Under ``masked`` it has an entry of
its own: readers see the release and no attempt. A device sends one update an attempt: its lease
keeps its nonce, and a sealed update is sent as it is.
"""

import hashlib
import time

import msgspec

from models.plan.plan import Plan
from privacy.accounting.events import PrivacyEvent, read_event
from privacy.accounting.ledger_chain import LedgerEntry
from privacy.noise.calibrated_settings import LocalNoise
from privacy.noise.plan_events import attempt_event, event_of, events_of
from privacy.noise.settings import PrivacySettings
from server.config.federation import FederationConfig
from server.records.ledger import ledger_entries, prepare_entry
from server.records.store import Store


class RoundEntries:
    """The ledger's entries of one run's rounds; all of it blocks."""

    def __init__(self, config: FederationConfig, store: Store, run: str) -> None:
        self._config = config
        self._store = store
        self._run = run

    def is_paid(self, round_number: int, attempt: int) -> bool:
        """Return whether the ledger holds an attempt; each is entered once, in its order."""
        event = attempt_event(self._config.rounds, self._config.privacy)
        return event is not None and len(self._of_attempts(round_number, event)) > attempt

    def of_attempt(self, round_number: int, attempt: int) -> LedgerEntry | None:
        """Return the entry to write before an attempt's first lease; None if it costs nothing."""
        event = attempt_event(self._config.rounds, self._config.privacy)
        if event is None or self.is_paid(round_number, attempt):
            return None
        return self._new(round_number, event)

    def of_release(self, round_number: int, privacy: PrivacySettings) -> LedgerEntry:
        """Return the entry that a release names: a new one, or under ``local`` its attempt's."""
        event = event_of(round_number, self._config.rounds, privacy)
        if isinstance(privacy, LocalNoise):
            entered = self._of_attempts(round_number, event)
            if entered:
                return entered[-1]
        return self._new(round_number, event)

    def terms_sha256(self, round_number: int, plan: Plan) -> bytes:
        """Return the digest of an attempt's plan and of its cost, which the draw decides."""
        costs = [
            msgspec.json.encode(event, order="deterministic")
            for event in events_of(round_number, self._config.rounds, self._config.privacy)
        ]
        return hashlib.sha256(b"".join([plan.encode(), *costs])).digest()

    def _of_attempts(self, round_number: int, event: PrivacyEvent) -> list[LedgerEntry]:
        """Return the entries of a round's attempts, whose kind is the event's."""
        return [
            entry
            for entry in ledger_entries(self._store)
            if entry.round_number == round_number and type(read_event(entry.event)) is type(event)
        ]

    def _new(self, round_number: int, event: PrivacyEvent) -> LedgerEntry:
        return prepare_entry(
            self._store, event, run=self._run, round_number=round_number, now=time.time()
        )
