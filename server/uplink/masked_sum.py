"""Sum a round's masked vectors, as they lie in the inbox, and unmask the sums; nothing is opened.

Memory is one sum a group and the few payloads that are open at one time. Sums are whole numbers
modulo 2^bits, so they are the same in any order. All of it blocks.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from models.masked.payload import MaskedPayload
from models.plan.plan import Plan, download_schema, released_schema
from models.settings.compression import release_step
from privacy.identities.certificates import read_certificate
from privacy.masking.mask_form import MaskTerms
from privacy.masking.packing import unpack
from privacy.sealing.envelope import NO_NONCE
from server.closing.close import Closed, Closing, noise_generator
from server.closing.masked_close import close_masked
from server.closing.masked_totals import MaskedTotals
from server.config.federation import FederationConfig
from server.devices.device_certificates import find_certificate
from server.downlink.attempt_in_hand import RoundInHand
from server.machine.answers import Close, Receipt
from server.records.contributions import StoredContribution, contributions_of, expire_contribution
from server.records.inbox import Inbox
from server.records.store import Store
from server.releases.earlier_releases import earlier_parameters
from server.releases.files import ReleaseFolder
from server.uplink.helper_call import MaskedMember
from server.uplink.masked_updates import MaskedOpener
from server.uplink.sealed_payloads import SealedUpdate

_LOG = logging.getLogger(__name__)
_UNREADABLE = "its sealed file no longer opens"
_NOT_UNMASKED = "the helper could not unmask it"


@dataclass(frozen=True)
class MaskedSets:
    """The masked vectors of a round, by group.

    Attributes:
        totals: Their running sums.
        members: What the helper is told of each vector, in slot order; one list a group.
    """

    totals: MaskedTotals
    members: tuple[list[MaskedMember], ...]


class MaskedSum:
    """The sums of a round, made from what the store and the inbox hold."""

    def __init__(
        self,
        config: FederationConfig,
        store: Store,
        inbox: Inbox,
        opener: MaskedOpener,
        *,
        releases: ReleaseFolder,
    ) -> None:
        self._config = config
        self._store = store
        self._inbox = inbox
        self._opener = opener
        self._releases = releases

    def begin(self, plan: Plan) -> None:
        """Take in the masked updates of a round's plan from now on."""
        self._opener.take_plan(plan)

    def terms(self, in_hand: RoundInHand, group: int) -> MaskTerms:
        """Return what the seeds of a group's set are bound to."""
        any_lease = in_hand.uplink_context("", 0, NO_NONCE)
        return MaskTerms(
            run=any_lease.run,
            round_number=in_hand.round_number,
            group=group,
            form=self._opener.masks.form(in_hand.attempt),
            base_sha256=any_lease.base_sha256,
            plan_sha256=any_lease.plan_sha256,
            deadline_ms=in_hand.deadline_ms,
        )

    def known_members(self, order: Close) -> tuple[list[MaskedMember], ...] | None:
        """Return the members of each group, if this process has checked them all; else None."""
        groups = self._opener.masks.groups
        members: tuple[list[MaskedMember], ...] = tuple([] for _ in range(groups))
        for one in contributions_of(self._store, order.round_number, order.attempt):
            receipt, chain = one.receipt, find_certificate(self._store, one.signing_sha256)
            seed = self._opener.seed_of(receipt.message_id)
            if seed is None or chain is None:
                return None
            member = MaskedMember(receipt.slot, receipt.nonce, seed, chain.der)
            members[receipt.slot % groups].append(member)
        return members

    def collect(self, order: Close, in_hand: RoundInHand) -> MaskedSets:
        """Return the set of each group; an update whose file no longer opens expires.

        Raises:
            OSError: If a file cannot be read for want of a descriptor.
        """
        masks = self._opener.masks
        sets = MaskedSets(
            MaskedTotals(masks.layout, masks.groups), tuple([] for _ in range(masks.groups))
        )
        stored = contributions_of(self._store, order.round_number, order.attempt)
        chains = [find_certificate(self._store, one.signing_sha256) for one in stored]
        sealed = [
            self._sealed(one, in_hand, None if chain is None else chain.der)
            for one, chain in zip(stored, chains, strict=True)
        ]
        try:
            with (
                self._opener.workers() as workers,
                self._opener.ahead(sealed, _as_it_is, workers) as opened,
            ):
                for one, chain, payload in zip(stored, chains, opened, strict=True):
                    receipt = one.receipt
                    if payload is None or chain is None:
                        self._expire(receipt, _UNREADABLE)
                        continue
                    sets.totals.add_packed(receipt.slot, payload.packed)
                    seed = bytes(payload.sealed_seed)
                    member = MaskedMember(receipt.slot, receipt.nonce, seed, chain.der)
                    sets.members[receipt.slot % masks.groups].append(member)
        finally:
            # Summed or not, no update stays open for longer than its round.
            self._opener.forget()
        return sets

    def leave_out(self, order: Close, slots: Collection[int]) -> None:
        """Let the updates of some slots expire, which the helper cannot unmask."""
        for receipt in order.receipts:
            if receipt.slot in slots:
                self._expire(receipt, _NOT_UNMASKED)

    def close(
        self,
        order: Close,
        in_hand: RoundInHand,
        base: Tensor,
        sets: MaskedSets,
        keystreams: Sequence[memoryview],
    ) -> Closed:
        """Return the outcome of a round from its sums and the packed ones of their masks, by group.

        ``base``, flat float32, shape ``(elements,)``, is its start. Call it once: the sums are
        unmasked in their own memory.

        Raises:
            MasksDoNotCancelError: If a sum is no sum of the vectors that came.
            ValueError: If the result is not finite.
        """
        closing, layout = self._closing(order, in_hand), self._opener.masks.layout
        masks = [unpack(one, layout.element_count, layout.grid.bits) for one in keystreams]
        return close_masked(base, sets.totals.unmasked(masks), layout, closing)

    def _closing(self, order: Close, in_hand: RoundInHand) -> Closing:
        config, plan = self._config, in_hand.plan
        return Closing(
            schema=download_schema(plan),
            aggregation=config.aggregation,
            # The plan's, not the federation's: the clipping norm may have moved on.
            privacy=plan.privacy,
            slot_count=order.slot_count,
            generator=noise_generator(config.seed, order.round_number),
            example_cap=config.training.example_cap,
            round_number=order.round_number,
            spool_folder=self._inbox.folder,
            release_step=release_step(plan.compression),
            earlier=earlier_parameters(
                self._releases,
                released_schema(plan),
                order.round_number - 1,
                config.aggregation.look_back,
            ),
        )

    def _expire(self, receipt: Receipt, reason: str) -> None:
        expire_contribution(self._store, receipt.nonce, reason)
        _LOG.error("an update of round %s expired: %s", receipt.round_number, reason)

    def _sealed(
        self, stored: StoredContribution, in_hand: RoundInHand, certificate: bytes | None
    ) -> SealedUpdate:
        receipt = stored.receipt
        return SealedUpdate(
            path=self._inbox.path(stored.blob),
            context=in_hand.uplink_context(receipt.client, receipt.slot, receipt.nonce),
            message_id=receipt.message_id,
            # None if its device was forgotten.
            senders=[] if certificate is None else [read_certificate(certificate)],
            attempt=receipt.attempt,
        )


def _as_it_is(payload: MaskedPayload) -> MaskedPayload:
    return payload
