"""Close a round in whichever way its updates arrived: opened by the coordinator, or under masks.

A round that cannot be closed is tried again. The reason is one stable code and its line, and names
nobody: of masks that do not cancel nobody can say whose fault it is.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from torch import Tensor

from models.plan.plan import Plan
from privacy.identities.certificates import CertificateError, CertifiedKey
from privacy.noise.masked_settings import MaskedNoise
from server.closing.close import Closed
from server.closing.masked_close import MasksDoNotCancelError
from server.downlink.attempt_in_hand import RoundInHand
from server.machine.answers import Close
from server.records.failpoints import Failpoint
from server.records.patience import until_possible
from server.releases.storage import Storage
from server.uplink.helper_call import (
    HelperAwayError,
    HelperCall,
    HelperRefusedError,
    MaskedMember,
)
from server.uplink.helper_reach import helper_told
from server.uplink.masked_sum import MaskedSets, MaskedSum
from server.uplink.slot_order_sum import RoundSum

_LOG = logging.getLogger(__name__)
# A round that closes at its deadline waits this long for the helper, or a quarter of its length
# if that is shorter.
_LEAST_PATIENCE_S = 30.0
_TOO_FEW = "too_few_updates: too few updates are left that can be summed"
_UNUSABLE = "updates_unusable: the updates could not be aggregated"
_AWAY = "helper_away: the helper did not answer before the deadline"
_UNCERTIFIED = "caller_uncertified: no key can be certified now with which to call the helper"
_LOST = "update_lost: an update that the helper has answered for no longer opens"
_DO_NOT_CANCEL = "masks_do_not_cancel: the masks of a sum do not cancel, whoever is to blame"


class NotClosedError(Exception):
    """Raised when a round has no outcome; the text is a stable code and its line."""


class RoundCloser(Protocol):
    """The way from a round's updates to its outcome."""

    def begin(self, plan: Plan) -> None:
        """Prepare for the updates of a round's plan, before its first lease."""

    async def helper_told(self) -> str:
        """Return a line on the helper; empty without one."""

    async def close(self, order: Close, in_hand: RoundInHand, base: Tensor) -> Closed:
        """Return the outcome of a round that started from ``base``, flat float32, ``(elements,)``.

        A full disk or a lack of descriptors is waited out.

        Raises:
            NotClosedError: If there is none; nothing has changed but updates that expired.
        """


class OpenedRounds:
    """The closer of rounds whose updates the coordinator opens."""

    def __init__(self, round_sum: RoundSum, storage: Storage) -> None:
        self._sum = round_sum
        self._threads = storage.threads

    def begin(self, plan: Plan) -> None:
        """Do nothing: updates arrive alike in every round of a stage."""

    async def helper_told(self) -> str:
        """See ``RoundCloser``."""
        return ""

    async def close(self, order: Close, in_hand: RoundInHand, base: Tensor) -> Closed:
        """See ``RoundCloser``."""
        try:
            closed = await until_possible(
                f"the close of round {order.round_number}",
                lambda: self._threads.run(lambda: self._sum.close(order, in_hand, base)),
            )
        except ValueError as error:
            _LOG.error("round %s cannot be closed: %s", order.round_number, error)
            raise NotClosedError(_UNUSABLE) from None
        if closed is None:
            raise NotClosedError(_TOO_FEW)
        return closed


class MaskedRounds:
    """The closer of rounds whose sums a helper helps to unmask."""

    def __init__(
        self,
        masked_sum: MaskedSum,
        helper: HelperCall,
        storage: Storage,
        *,
        address: str,
        key: CertifiedKey,
    ) -> None:
        """Ask the helper at ``host:port``, whose wrapping key is given."""
        self._sum = masked_sum
        self._helper = helper
        self._address = address
        self._key = key
        self._threads, self._failpoints = storage.threads, storage.failpoints

    def begin(self, plan: Plan) -> None:
        """See ``RoundCloser``."""
        self._sum.begin(plan)

    async def helper_told(self) -> str:
        """See ``RoundCloser``."""
        return await helper_told(self._address, self._key)

    async def close(self, order: Close, in_hand: RoundInHand, base: Tensor) -> Closed:
        """See ``RoundCloser``; waits for the helper until the round's deadline.

        Begun again at any point, by this process or the next, it asks for the same sets and gets
        the same answers.
        """
        deadline = in_hand.deadline_ms / 1000
        patience_s = min(_LEAST_PATIENCE_S, (deadline - in_hand.opened_at) / 4)
        until = max(deadline, time.time() + patience_s)
        try:
            return await until_possible(
                f"the close of round {order.round_number}",
                lambda: self._closed(order, in_hand, base, until),
            )
        except MasksDoNotCancelError:
            raise NotClosedError(_DO_NOT_CANCEL) from None
        except HelperAwayError:
            raise NotClosedError(_AWAY) from None
        except HelperRefusedError as refused:
            raise NotClosedError(f"helper_refused ({refused.code}): {refused}") from None
        except CertificateError as error:
            _LOG.error("round %s cannot be closed: %s", order.round_number, error)
            raise NotClosedError(_UNCERTIFIED) from None
        except ValueError as error:
            _LOG.error("round %s cannot be closed: %s", order.round_number, error)
            raise NotClosedError(_UNUSABLE) from None

    async def _closed(
        self, order: Close, in_hand: RoundInHand, base: Tensor, until: float
    ) -> Closed:
        sets, keystreams = await self._unmasking(order, in_hand, until)
        self._failpoints.reach(Failpoint.UNMASKED)
        return await self._threads.run(
            lambda: self._sum.close(order, in_hand, base, sets, keystreams)
        )

    async def _unmasking(
        self, order: Close, in_hand: RoundInHand, until: float
    ) -> tuple[MaskedSets, Sequence[memoryview]]:
        """Return the sets and the sums of their keystreams, without what cannot be unmasked."""
        least = _least_contributors(in_hand)
        while True:
            known = await self._threads.run(partial(self._sum.known_members, order))
            # The helper sums meanwhile, if nothing has to be opened to ask it.
            collecting = asyncio.create_task(
                self._threads.run(partial(self._sum.collect, order, in_hand))
            )
            try:
                members = known or (await collecting).members
                if min(map(len, members)) < least:
                    raise NotClosedError(_TOO_FEW)
                keystreams = await self._asked(in_hand, members, until)
                sets = await collecting
            except HelperRefusedError as refused:
                # Nothing was answered for that set, so it may be asked for without them.
                await asyncio.wait({collecting})
                slots = {one.slot for group in members for one in group} & set(refused.slots)
                if not slots:
                    raise
                await self._threads.run(partial(self._sum.leave_out, order, slots))
            else:
                if sets.members != members:
                    raise NotClosedError(_LOST)
                return sets, keystreams
            finally:
                # However this ended: the next attempt must not meet a thread of this one.
                await asyncio.wait({collecting})

    async def _asked(
        self, in_hand: RoundInHand, members: Sequence[Sequence[MaskedMember]], until: float
    ) -> list[memoryview]:
        return [
            await self._helper.keystream_sum(self._sum.terms(in_hand, group), each, until=until)
            for group, each in enumerate(members)
        ]


def _least_contributors(in_hand: RoundInHand) -> int:
    """Return the fewest vectors of one sum: the noise of a device's share counts on them."""
    privacy, quorum = in_hand.plan.privacy, in_hand.plan.quorum
    if not isinstance(privacy, MaskedNoise) or quorum is None:
        raise ValueError("only a plan of masked sums with a quorum is closed with a helper")
    return privacy.least_contributors(quorum)
