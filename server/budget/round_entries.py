"""Make the entries of a round in the privacy ledger: one for its release, or one an attempt.

If the coordinator draws the noise, a round shows something when its model is released. Under
``local`` the coordinator itself sees a noised update of each drawn device, whatever comes of the
attempt. So every attempt is paid for before its first lease, and a release shows nothing more. A
device sends one update an attempt: its lease keeps its nonce, and a sealed update is sent as it is.
"""

import hashlib
import time

import msgspec

from models.plan.plan import Plan
from privacy.accounting.ledger_chain import LedgerEntry
from privacy.noise.calibrated_settings import LocalNoise
from privacy.noise.plan_events import event_of
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
        if not isinstance(self._config.privacy, LocalNoise):
            return False
        return len(self._of_round(round_number)) > attempt

    def of_attempt(self, round_number: int, attempt: int) -> LedgerEntry | None:
        """Return the entry to write before an attempt's first lease; None if it costs nothing."""
        privacy = self._config.privacy
        if not isinstance(privacy, LocalNoise) or self.is_paid(round_number, attempt):
            return None
        return self._new(round_number, privacy)

    def of_release(self, round_number: int, privacy: PrivacySettings) -> LedgerEntry:
        """Return the entry that a release names: a new one, or that of its attempt."""
        if isinstance(privacy, LocalNoise):
            entered = self._of_round(round_number)
            if entered:
                return entered[-1]
        return self._new(round_number, privacy)

    def terms_sha256(self, round_number: int, plan: Plan) -> bytes:
        """Return the digest of an attempt's plan and of its cost, which the draw decides."""
        event = event_of(round_number, self._config.rounds, self._config.privacy)
        costs = msgspec.json.encode(event, order="deterministic")
        return hashlib.sha256(plan.encode() + costs).digest()

    def _of_round(self, round_number: int) -> list[LedgerEntry]:
        entries = ledger_entries(self._store)
        return [entry for entry in entries if entry.round_number == round_number]

    def _new(self, round_number: int, privacy: PrivacySettings) -> LedgerEntry:
        event = event_of(round_number, self._config.rounds, privacy)
        return prepare_entry(
            self._store, event, run=self._run, round_number=round_number, now=time.time()
        )
