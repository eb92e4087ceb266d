"""A masked update is looked at before it counts, though nothing in it can be read."""

import dataclasses
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from models.masked.payload import encode_payload
from models.plan.plan import Plan
from privacy.masking.mask_form import MaskForm
from privacy.masking.packing import pack
from privacy.masking.sealed_seed import seal_seed, seed_context
from privacy.sealing.envelope import MessageContext, seal
from protos.refusals import RefusalCode
from server.config.plans import make_plan
from server.devices.refused_calls import RefusedError
from server.downlink.attempt_in_hand import RoundInHand
from server.uplink.masked_updates import MaskedOpener, Masks
from server.uplink.sealed_payloads import SealedUpdate
from tests.server.sealing import RUN, Parties, configure, make_parties, round_in_hand

# With 20 bits and an odd number of elements half of the last byte is empty.
MASKED = (
    'mode = "masked"\nclipping_norm = 1.0\nnoise_multiplier = {z}\ndelta = 1e-3\n'
    "epsilon_budget = 1e9\ncoordinator_epsilon_budget = 1e9\n"
    'adjacency = "zero-out"\nhonest_share = 1.0\n'
)
MEAN = 'rule = "mean"\nweighting = "equal"\nserver_step_size = 1.0\n'
CONFIG = configure(privacy=MASKED.format(z=1e-4), aggregation=MEAN)
NONCE = bytes(range(16))


@pytest.fixture(scope="module")
def parties() -> Parties:
    return make_parties(Path(tempfile.mkdtemp()), ("device-0001",))


@dataclasses.dataclass
class Uploads:
    """Seal what a device sends, and have it checked as at its commit."""

    folder: Path
    parties: Parties

    def __post_init__(self) -> None:
        self.in_hand: RoundInHand = round_in_hand(CONFIG, self.parties.coordinator)
        self.plan: Plan = self.in_hand.plan
        self.masks = Masks(self.plan)
        self.opener = MaskedOpener(self.masks, self.parties.coordinator)
        self.context: MessageContext = self.in_hand.uplink_context("device-0001", 0, NONCE)

    def sealed_seed(self, form: MaskForm | None = None, **changes: object) -> bytes:
        """Return a seed bound to this lease, or to another one or form."""
        context = seed_context(self.context, form or self.masks.form(0))
        return seal_seed(
            os.urandom(32),
            dataclasses.replace(context, **changes),  # type: ignore[arg-type]
            device=self.parties.devices[0],
            helper=self.parties.coordinator.wrapping.certified,
        )

    def packed(self) -> memoryview:
        layout = self.masks.layout
        values = np.zeros(layout.element_count, np.uint32)
        return pack(values, layout.grid.bits)

    def check(self, payload: bytes | memoryview, attempt: int = 0) -> bytes:
        message = seal(
            payload,
            self.context,
            sender=self.parties.devices[0],
            recipient=self.parties.coordinator.wrapping.certified,
        )
        path = self.folder / "update.sealed"
        path.write_bytes(b"".join(map(bytes, message.views())))
        sender = self.parties.devices[0].signing.certified
        return self.opener.check(
            SealedUpdate(
                path=path,
                context=self.context,
                message_id=message.message_id,
                senders=[sender],
                attempt=attempt,
            )
        )


@pytest.fixture
def uploads(parties: Parties, tmp_path: Path) -> Uploads:
    return Uploads(tmp_path, parties)


def test_a_masked_update_of_this_lease_is_taken_and_its_signer_told(uploads: Uploads) -> None:
    payload = encode_payload(uploads.masks.layout, uploads.packed(), uploads.sealed_seed())

    signer = uploads.parties.devices[0].signing.certified
    assert uploads.check(payload) == signer.sha256
    # The announced size is checked before a byte is taken.
    sealed = uploads.in_hand.upload_bytes
    uploads.in_hand.check_upload_size(sealed)
    with pytest.raises(ValueError, match=f"total_bytes must be {sealed}"):
        uploads.in_hand.check_upload_size(sealed - 1)


@pytest.mark.parametrize("name", ["attempt", "length", "groups", "lease", "slot", "base"])
def test_a_seed_that_is_bound_to_something_else_is_refused(uploads: Uploads, name: str) -> None:
    form = uploads.masks.form(0)
    changes: dict[str, object] = {}
    match name:
        case "attempt":
            form = uploads.masks.form(1)
        case "length":
            form = dataclasses.replace(form, element_count=form.element_count - 1)
        case "groups":
            form = dataclasses.replace(form, groups=2)
        case "lease":
            changes = {"lease_nonce": bytes(16)}
        case "slot":
            changes = {"slot": 1}
        case "base":
            changes = {"base_sha256": b"b" * 32}
    seed = uploads.sealed_seed(form, **changes)
    payload = encode_payload(uploads.masks.layout, uploads.packed(), seed)

    with pytest.raises(RefusedError, match="not bound to this lease") as refused:
        uploads.check(payload)

    assert refused.value.code is RefusalCode.MALFORMED_UPDATE


def test_a_vector_on_another_grid_or_with_a_full_last_nibble_is_refused(uploads: Uploads) -> None:
    layout, seed = uploads.masks.layout, uploads.sealed_seed()
    config = configure(privacy=MASKED.format(z=1.1e-4), aggregation=MEAN)
    other = Masks(make_plan(config, RUN, cohort_size=3)).layout
    assert (layout.grid.bits, layout.element_count % 2) == (20, 1)
    assert other.payload_bytes == layout.payload_bytes

    packed = bytearray(uploads.packed())
    packed[-1] |= 0x10
    for payload, why in (
        (encode_payload(other, uploads.packed(), seed), "another model, weighing or grid"),
        (encode_payload(layout, bytes(packed), seed), "the last packed byte must be zero"),
    ):
        with pytest.raises(RefusedError, match=why) as refused:
            uploads.check(payload)
        assert refused.value.code is RefusalCode.MALFORMED_UPDATE
