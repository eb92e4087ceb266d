"""Sum a round: open its sealed updates in slot order and hand them to ``server.closing.close``."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from torch import Tensor

from models.plan.plan import download_schema, released_schema
from models.settings.compression import release_step
from privacy.clipping.clip import UnusableUpdateError
from privacy.identities.certificates import CertifiedKey, read_certificate
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.secure_gaussian import NoiseKeys
from server.aggregation.closing_workers import ClosingWorkers
from server.aggregation.noised_sums import weights_of_figures
from server.aggregation.screening import Screen
from server.aggregation.screening_settings import typical_norm_after
from server.budget.round_gate import hides_figures
from server.closing.close import Closed, Closing, close_round, noise_generator
from server.closing.summing import Contribution, Examined
from server.config.federation import FederationConfig
from server.devices.device_certificates import find_certificate
from server.downlink.attempt_in_hand import RoundInHand
from server.machine.answers import Close, Receipt
from server.records.contributions import StoredContribution, contributions_of, expire_contribution
from server.records.inbox import Inbox
from server.records.store import Store
from server.releases.earlier_releases import earlier_parameters
from server.releases.files import ReleaseFolder
from server.releases.method_state import MethodState
from server.releases.publishing import last_release
from server.uplink.sealed_payloads import SealedUpdate
from server.uplink.sealed_updates import UpdateOpener

_LOG = logging.getLogger(__name__)
_UNREADABLE = "its sealed file no longer opens"
_UNUSABLE = "it could not be aggregated under the settings of its round"
_UNTOLD = "it did not count"


class _Opened(NamedTuple):
    """One update, opened and looked at in the same thread."""

    update: Tensor
    examined: Examined


class RoundSum:
    """The sum of a round, made from what the store and the inbox hold."""

    def __init__(
        self,
        config: FederationConfig,
        store: Store,
        inbox: Inbox,
        opener: UpdateOpener,
        *,
        noise_keys: NoiseKeys,
        method: MethodState,
        releases: ReleaseFolder,
    ) -> None:
        self._config = config
        self._store = store
        self._inbox = inbox
        self._opener = opener
        self._noise_keys = noise_keys
        self._method = method
        self._releases = releases
        self._is_sampled = config.rounds.selection == "sampled"
        # What a round that came to nothing has seen of norms: its next attempt must know better.
        self._seen: tuple[int, float | None] | None = None
        self._has_expired = False

    def close(self, order: Close, in_hand: RoundInHand, base: Tensor) -> Closed | None:
        """Return the outcome of a round; None if too few of its updates are left.

        ``base``, flat float32, shape ``(elements,)``, is its start. The personalisation method has
        learnt from the round only if there is an outcome.

        Raises:
            ValueError: If the updates cannot be aggregated; one that alone is at fault expires.
        """
        before = self._method.snapshot()
        # Sampled: a round that is not released would tell that too few were drawn.
        quorum = 0 if self._is_sampled else self._config.rounds.quorum
        closed: Closed | None = None
        self._has_expired = False
        try:
            closed = self._sum_usable(order, in_hand, base, before)
        finally:
            # Summed or not, no update stays open for longer than its round.
            self._opener.forget()
            if self._has_expired:
                _LOG.error("round %s: not every update counts", order.round_number)
            if closed is None or closed.contribution_count < quorum:
                self._method.roll_back(before)
                closed = None
        return closed

    def _sum_usable(
        self, order: Close, in_hand: RoundInHand, base: Tensor, before: Mapping[str, Tensor]
    ) -> Closed | None:
        """Sum until no update is left that keeps the others from counting."""
        while True:
            adding: list[Receipt] = []
            try:
                return self._sum(order, in_hand, base, adding)
            except UnusableUpdateError:
                # It was measured before it was acknowledged, so settings have changed since; even
                # then one update must not keep the others from counting.
                if not adding:
                    raise
                # The error's own text has the update's norm, which is for no log and no disk.
                self._expire(adding[-1], _UNUSABLE)
                self._method.roll_back(before)

    def _sum(
        self, order: Close, in_hand: RoundInHand, base: Tensor, adding: list[Receipt]
    ) -> Closed | None:
        """Try once; ``adding`` ends in the update that was last handed over."""
        screen = self._screen(order.round_number, in_hand)
        stored = contributions_of(self._store, order.round_number, order.attempt)
        sealed = [self._sealed(contribution, in_hand) for contribution in stored]
        with self._opener.workers() as workers:
            terms = self._terms(order, in_hand, screen, workers)
            with self._opener.ahead(sealed, partial(_examined, terms), workers) as opened:
                contributions = self._contributions(order, stored, opened, adding)
                first = next(contributions, None)
                if first is None and not self._is_sampled:
                    return None
                try:
                    closed = close_round(
                        base, chain(() if first is None else (first,), contributions), terms
                    )
                finally:
                    self._seen = (order.round_number, screen.next_typical_norm)
        self._set_aside(order, screen)
        return closed

    def _terms(
        self, order: Close, in_hand: RoundInHand, screen: Screen, workers: ClosingWorkers
    ) -> Closing:
        return Closing(
            schema=download_schema(in_hand.plan),
            aggregation=self._config.aggregation,
            # The plan's, not the federation's: the clipping norm may have moved on.
            privacy=in_hand.plan.privacy,
            slot_count=order.slot_count,
            generator=noise_generator(self._config.seed, order.round_number),
            # Tests alone repeat noise in a deployment.
            seeded=self._noise_keys.repeats,
            example_cap=self._config.training.example_cap,
            personalisation=self._method.half,
            round_number=order.round_number,
            noise_keys=self._noise_keys,
            spool_folder=self._inbox.folder,
            screen=screen,
            release_step=release_step(in_hand.plan.compression),
            earlier=earlier_parameters(
                self._releases,
                released_schema(in_hand.plan),
                order.round_number - 1,
                self._config.aggregation.look_back,
            ),
            weights_so_far=self._weights_so_far(in_hand),
            workers=workers,
        )

    def _weights_so_far(self, in_hand: RoundInHand) -> tuple[float, ...] | None:
        """Return what the rounds before left of weights, where a tree noises sums."""
        last = last_release(self._store) if isinstance(in_hand.plan.privacy, TreeNoise) else None
        return None if last is None else weights_of_figures(last.metrics)

    def _screen(self, round_number: int, in_hand: RoundInHand) -> Screen:
        """Return what looks at the updates of a round, from what the one before left."""
        if self._seen is not None and self._seen[0] == round_number:
            typical = self._seen[1]
        else:
            last = last_release(self._store)
            figures = {} if last is None else last.metrics
            typical = typical_norm_after(figures, in_hand.plan.growth_stage)
        return Screen(
            self._config.screening,
            typical_norm=typical,
            clipping_norm=in_hand.plan.privacy.clipping_norm,
        )

    def _set_aside(self, order: Close, screen: Screen) -> None:
        """Let the updates that were set aside expire, none with a reason of its own."""
        places = order.places()
        receipts = {places[receipt.client]: receipt for receipt in order.receipts}
        for slot in screen.refused_slots:
            self._expire(receipts[slot], _UNUSABLE)

    def _contributions(
        self,
        order: Close,
        stored: Sequence[StoredContribution],
        opened: Iterable[_Opened | None],
        adding: list[Receipt],
    ) -> Iterator[Contribution]:
        """Yield what is committed, in slot order, each as long as it stays open."""
        places = order.places()
        for contribution, one in zip(stored, opened, strict=True):
            receipt = contribution.receipt
            if one is None:
                self._expire(receipt, _UNREADABLE)
                continue
            adding.append(receipt)
            # Under a guarantee no count was told, and every update weighs alike.
            count = 1 if contribution.example_count is None else contribution.example_count
            yield Contribution(
                places[receipt.client], one.update, count, receipt.client, one.examined
            )

    def _expire(self, receipt: Receipt, reason: str) -> None:
        if hides_figures(self._config.privacy):
            # One line a round, and no reason: lines would count what no noise covers.
            self._has_expired = True
            expire_contribution(self._store, receipt.nonce, _UNTOLD)
            return
        expire_contribution(self._store, receipt.nonce, reason)
        _LOG.error("an update of round %s expired: %s", receipt.round_number, reason)

    def _sealed(self, stored: StoredContribution, in_hand: RoundInHand) -> SealedUpdate:
        receipt = stored.receipt
        return SealedUpdate(
            path=self._inbox.path(stored.blob),
            context=in_hand.uplink_context(receipt.client, receipt.slot, receipt.nonce),
            message_id=receipt.message_id,
            senders=self._signers(stored.signing_sha256),
        )

    def _signers(self, signing_sha256: bytes) -> list[CertifiedKey]:
        """Return the key that the update was verified with; none if its device was forgotten."""
        certificate = find_certificate(self._store, signing_sha256)
        return [] if certificate is None else [read_certificate(certificate.der)]


def _examined(terms: Closing, update: Tensor) -> _Opened:
    return _Opened(update, terms.examine(update))
