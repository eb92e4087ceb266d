"""Bring store, inbox and releases back together after a process was killed at any moment.

Acknowledged updates are kept, recorded releases are published and never made again, and files
without a row are deleted. Running it twice changes nothing.
"""

import logging
from dataclasses import dataclass

from server.machine.answers import Receipt
from server.records.attempts import OpenAttempt, current_attempt, next_attempt
from server.records.contributions import StoredContribution, contributions_of, expire_contribution
from server.records.inbox import Inbox
from server.records.store import Store
from server.releases.files import ReleaseFolder
from server.releases.publishing import last_release, publish_release

_LOG = logging.getLogger(__name__)
_MISSING = "its sealed file was missing or cut short after a restart"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The round and attempt at which the run goes on, and a running one's receipts by slot."""

    round_number: int
    attempt: int
    open_attempt: OpenAttempt | None
    receipts: tuple[Receipt, ...]


def recover(store: Store, inbox: Inbox, folder: ReleaseFolder, *, now: float) -> Recovered:
    """Repair what a crash left and return where the run goes on.

    Raises:
        ReleaseError: If the files of a recorded release are gone.
    """
    finish_release(store, folder, now)
    running = current_attempt(store)
    held = [] if running is None else _present(store, inbox, running)
    orphans = inbox.clear_all_but({contribution.blob for contribution in held})
    if orphans:
        # No number: of a round that is done it may be a secret.
        _LOG.info("deleted sealed files that were never acknowledged or are done")
    receipts = tuple(contribution.receipt for contribution in held)
    if running is not None:
        return Recovered(running.round_number, running.attempt, running, receipts)
    return Recovered(*next_attempt(store), None, receipts)


def finish_release(store: Store, folder: ReleaseFolder, now: float) -> None:
    """Publish a recorded release, delete an unrecorded one, and finish replacements.

    Raises:
        ReleaseError: If the files of a recorded release are gone.
    """
    folder.repair_rewriting()
    last = last_release(store)
    pending = last if last is not None and not last.is_published else None
    if pending is None:
        folder.discard_unpublished(keep=None)
        return
    number, term = pending.round_number, pending.term
    folder.discard_unpublished(keep=number, term=term)
    publish_release(store, folder, number, now=now, term=term)
    _LOG.info("published round %d, which was recorded before the restart", number)


def _present(store: Store, inbox: Inbox, running: OpenAttempt) -> list[StoredContribution]:
    present, held = [], contributions_of(store, running.round_number, running.attempt)
    for contribution in held:
        path = inbox.path(contribution.blob)
        if path.is_file() and path.stat().st_size == contribution.blob_bytes:
            present.append(contribution)
            continue
        expire_contribution(store, contribution.receipt.nonce, _MISSING)
    if len(present) < len(held):
        _LOG.warning("not every update of round %s counts: %s", running.round_number, _MISSING)
    return present
