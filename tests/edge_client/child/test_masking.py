"""A device masks each message with a seed of its own, and nothing shows without it."""

import dataclasses
import hashlib
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from edge_client.child.work import do_job
from edge_client.jobs.job import Failed, Job, Trained
from models.masked.layout import MaskedLayout, masked_layout
from models.masked.payload import split_payload
from models.settings.weighing import EqualWeights
from privacy.identities.party import Identity
from privacy.masking.keystream import add_keystream
from privacy.masking.mask_form import MaskForm
from privacy.masking.packing import unpack
from privacy.masking.rotation import rotate_back
from privacy.masking.sealed_seed import open_seed, seed_context
from privacy.noise.masked_settings import MaskedNoise
from privacy.sealing.envelope import Direction, open_sealed
from tests.edge_client.job_scene import Enrolled, Scene, enrol_device
from tests.privacy.conftest import enrol

ATTEMPT = 3


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_device(tmp_path_factory.mktemp("enrolled"))


class MaskedScene(Scene):
    """Hold a job whose plan masks the update, and the helper that holds its seed."""

    def __init__(self, folder: Path, enrolled: Enrolled) -> None:
        super().__init__(folder, enrolled)
        now = enrolled.coordinator.signing.certified.not_before + 100_000
        self.helper = enrol(enrolled.authority, folder / "helper", "helper", "helper", now=now)
        self.plan = msgspec.structs.replace(
            self.plan,
            privacy=MaskedNoise(
                clipping_norm=1.0,
                noise_multiplier=0.01,
                delta=1e-5,
                epsilon_budget=1e9,
                coordinator_epsilon_budget=1e9,
                adjacency="zero-out",
                honest_share=1.0,
            ),
            weighing=EqualWeights(),
            cohort_size=2,
            quorum=2,
        )
        self.asked = self.plan

    def masked_job(self) -> Job:
        return self.job(attempt=ATTEMPT, helper_certificate=self.helper.certificates.wrapping)

    def sent(self) -> tuple[MaskedLayout, bytes, bytes]:
        """Do the job; return the layout, the packed vector and the seed, as the helper opens it."""
        outcome = do_job(self.masked_job())
        assert isinstance(outcome, Trained), outcome
        assert outcome.example_count == 0
        layout = masked_layout(self.plan)
        context = self.context(Direction.UPLINK)
        sender = Identity.load(self.device / "identity").signing.certified
        payload = open_sealed(
            [self.update.read_bytes()],
            context,
            payload_bytes=layout.payload_bytes,
            recipient=self.coordinator,
            sender=sender,
        )
        packed, sealed = split_payload(layout, payload)
        form = MaskForm(
            element_count=layout.element_count,
            bits=layout.grid.bits,
            attempt=ATTEMPT,
            groups=1,
            least_contributors=2,
        )
        bound = seed_context(dataclasses.replace(context), form)
        seed = open_seed(bytes(sealed), bound, helper=self.helper, sender=sender)
        return layout, bytes(packed), seed


def unmasked(layout: MaskedLayout, packed: bytes, seed: bytes) -> NDArray[np.int64]:
    """Take a mask off, and return the elements centred."""
    bits = layout.grid.bits
    vector = unpack(packed, layout.element_count, bits)
    add_keystream(vector, seed, bits=bits, sign=-1)
    centred = vector.astype(np.int64)
    return np.where(centred < 1 << (bits - 1), centred, centred - (1 << bits))


def test_the_seed_that_the_helper_opens_takes_the_mask_off(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    layout, packed, seed = MaskedScene(tmp_path, enrolled).sent()

    vector = unmasked(layout, packed, seed)

    assert (vector[layout.noised_count :] == 1).all()
    message = vector[: layout.noised_count].astype(np.float64)
    message *= layout.grid.step
    rotate_back(message)
    # The update is at most as long as the clip, and each element's noise is a hundredth of it.
    assert 0 < np.linalg.norm(message[: layout.schema.element_count]) < 2
    assert message[layout.weights] == pytest.approx([layout.weight_entry], abs=0.1)


def test_a_device_that_trains_again_never_masks_two_vectors_with_one_seed(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    scene = MaskedScene(tmp_path, enrolled)

    (layout, first, one), (_, second, other) = scene.sent(), scene.sent()

    assert one != other
    # The noise is drawn anew too: nobody learns a vector from two uploads of it.
    before, after = unmasked(layout, first, one), unmasked(layout, second, other)
    assert (before != after).any()
    digests = {hashlib.sha256(packed).digest() for packed in (first, second)}
    assert len(digests) == 2


def test_a_text_that_cannot_be_used_shows_in_nothing_that_leaves(
    tmp_path: Path, enrolled: Enrolled
) -> None:
    scene = MaskedScene(tmp_path, enrolled)
    (scene.data / "messages.txt").write_bytes(b"\xff\x00\xff")

    layout, packed, seed = scene.sent()

    # A masked update of zeros, of full weight: nobody is told that there was nothing to learn from.
    message = unmasked(layout, packed, seed)[: layout.noised_count].astype(np.float64)
    message *= layout.grid.step
    rotate_back(message)
    # Each element's share of the noise is z S, and 7 of it on 200 elements has a chance of 1e-9.
    noise = 0.01 * math.sqrt(1.1)
    assert np.abs(message[: layout.schema.element_count]).max() < 7 * noise
    assert message[layout.weights] == pytest.approx([layout.weight_entry], abs=7 * noise)


@pytest.mark.parametrize("certificate", ["none", "coordinator"])
def test_without_a_helper_nothing_is_sealed(
    tmp_path: Path, enrolled: Enrolled, certificate: str
) -> None:
    scene = MaskedScene(tmp_path, enrolled)
    given = None if certificate == "none" else enrolled.coordinator.certificates.wrapping

    outcome = do_job(scene.job(helper_certificate=given))

    assert isinstance(outcome, Failed)
    assert outcome.code == "certificate_unusable"
    assert not scene.update.exists()
