"""Open the envelopes of masked updates: what is inside says nothing to the coordinator either.

On arrival two things can be looked at: that the payload has the plan's layout, and that its seed is
bound to this very lease and mask. So a device can spoil a sum only by what it puts under its mask,
or by a seed that does not open, which the helper tells.
"""

from models.masked.layout import MaskedLayout, mask_form, masked_layout
from models.masked.payload import MaskedPayload, check_payload, split_payload
from models.plan.plan import Plan
from models.vector.codec import CodecError, Payload
from privacy.identities.party import Identity
from privacy.masking.mask_form import MaskForm
from privacy.masking.sealed_seed import check_seed, seed_context
from privacy.noise.masked_settings import MaskedNoise
from privacy.sealing.envelope import UnsealError
from protos.refusals import RefusalCode
from server.aggregation.closing_workers import buffers_wanted, closing_worker_count
from server.devices.refused_calls import RefusedError
from server.uplink.sealed_payloads import PayloadOpener, SealedUpdate
from server.uplink.update_buffers import buffer_count_for


class Masks:
    """The masked vectors of one plan: their layout, and the one form of their payloads."""

    def __init__(self, plan: Plan) -> None:
        """Take a plan's layout; ValueError if it is of another mode."""
        self._plan = plan
        self.layout: MaskedLayout = masked_layout(plan)
        self.groups = plan.privacy.groups if isinstance(plan.privacy, MaskedNoise) else 1
        self.payload_bytes = self.least_bytes = self.layout.payload_bytes
        self.buffer_count = buffer_count_for(
            self.payload_bytes, plan.cohort_size, closing=buffers_wanted(closing_worker_count())
        )

    def of_round(self, round_number: int) -> "Masks":
        """Return itself: every round has the same."""
        return self

    def check_layout(self, payload: Payload) -> None:
        """Check all that needs no value; raises ``CodecError``."""
        check_payload(self.layout, payload)

    def form(self, attempt: int) -> MaskForm:
        """Return what the seeds of an attempt, from 0, are bound to beside their lease."""
        return mask_form(self._plan, self.layout, attempt)


class MaskedOpener(PayloadOpener[MaskedPayload]):
    """An opener of masked payloads: the packed vector and the sealed seed, where they lie."""

    def __init__(self, masks: Masks, identity: Identity) -> None:
        super().__init__(masks, identity, buffer_count=masks.buffer_count)
        self.masks = masks
        # By message: the close asks the helper without opening everything first.
        self._seeds: dict[bytes, bytes] = {}

    def take_plan(self, plan: Plan) -> None:
        """Open payloads of a round's plan, before its first lease: the grid follows the cohort."""
        masks = Masks(plan)
        if masks.layout.sha256 != self.masks.layout.sha256:
            self._take_forms(masks, masks.buffer_count)
        self.masks = masks

    def check(self, sealed: SealedUpdate) -> bytes:
        """Check that the seed is the lease's, without opening it; see ``PayloadOpener.check``."""
        context = seed_context(sealed.context, self.masks.form(sealed.attempt))
        with self.opened(sealed) as (payload, signing_sha256):
            (sender,) = (one for one in sealed.senders if one.sha256 == signing_sha256)
            seed = bytes(payload.sealed_seed)
            try:
                self._check_filling(payload.packed)
                check_seed(seed, context, sender)
            except CodecError as error:
                raise RefusedError(RefusalCode.MALFORMED_UPDATE, str(error)) from None
            except UnsealError:
                raise RefusedError(
                    RefusalCode.MALFORMED_UPDATE, "the mask's seed is not bound to this lease"
                ) from None
            self._seeds[sealed.message_id] = seed
            return signing_sha256

    def seed_of(self, message_id: bytes) -> bytes | None:
        """Return the sealed seed of an update that this process has checked since ``forget``."""
        return self._seeds.get(message_id)

    def forget(self) -> None:
        """Let go of every update and seed that is still at hand: the round is summed."""
        super().forget()
        self._seeds.clear()

    def _check_filling(self, packed: memoryview) -> None:
        """Check what a sum could not be made of: the bits behind the last element."""
        layout = self.masks.layout
        used = layout.element_count * layout.grid.bits % 8
        if used and packed[-1] >> used:
            raise CodecError("the bits that fill the last packed byte must be zero")

    def _content(self, payload: memoryview, round_number: int) -> MaskedPayload:
        return split_payload(self.masks.layout, payload)
