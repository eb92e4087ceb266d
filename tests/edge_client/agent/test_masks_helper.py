"""A device masks nothing for a helper that its owner has not pinned."""

import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

from edge_client.agent.acceptance import PlanRefusedError
from edge_client.agent.masks_helper import accept_helper
from edge_client.owner.pinned_helper import helper_in_words
from models.plan.plan import Plan
from models.settings.weighing import EqualWeights
from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from privacy.noise.masked_settings import MaskedNoise
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import RUN, shipped_plan
from tests.privacy.conftest import enrol

DAY_S = 86_400.0


@cache
def parties() -> tuple[CertificateAuthority, Identity, Identity]:
    """Return an authority, a helper and another one that it certified."""
    folder = Path(tempfile.mkdtemp())
    authority = CertificateAuthority.create(folder / "authority", RUN)
    first, second = (
        enrol(authority, folder / name, "helper", "helper", now=time.time())
        for name in ("first", "second")
    )
    return authority, first, second


def masked_plan() -> Plan:
    return shipped_plan(
        privacy=MaskedNoise(
            clipping_norm=1.0,
            noise_multiplier=1.0,
            delta=1e-5,
            epsilon_budget=8.0,
            coordinator_epsilon_budget=8.0,
            adjacency="zero-out",
            honest_share=1.0,
        ),
        weighing=EqualWeights(),
        cohort_size=2,
        quorum=2,
    )


def pin_of(helper: Identity) -> str:
    return helper.wrapping.certified.sha256.hex()


def test_a_pinned_helper_is_accepted_and_other_plans_have_none() -> None:
    authority, helper, _ = parties()
    lease = wire.Lease(helper_certificate=helper.certificates.wrapping)
    ca, now = authority.certificate, time.time()

    accept_helper(lease, masked_plan(), {pin_of(helper)}, authority=ca, now=now)
    accept_helper(wire.Lease(), shipped_plan(), None, authority=ca, now=now)


@pytest.mark.parametrize(
    ("given", "pins", "later_s", "code"),
    [
        ("none", ["first"], 0.0, "floor_helper"),
        ("first", None, 0.0, "floor_helper"),
        # Certified by the same authority, and still not whom the owner knows.
        ("second", ["first"], 0.0, "floor_helper"),
        ("signing", ["first"], 0.0, "helper_certificate"),
        ("first", ["first"], 91 * DAY_S, "helper_certificate"),
        ("garbage", ["first"], 0.0, "helper_certificate"),
    ],
)
def test_any_other_helper_is_refused_with_a_code(
    given: str, pins: list[str] | None, later_s: float, code: str
) -> None:
    authority, first, second = parties()
    named = {"first": first, "second": second}
    certificates = {
        "none": b"",
        "garbage": b"\x30\x00",
        "signing": first.certificates.signing,
        "first": first.certificates.wrapping,
        "second": second.certificates.wrapping,
    }
    pinned = None if pins is None else {pin_of(named[name]) for name in pins}

    with pytest.raises(PlanRefusedError) as refused:
        accept_helper(
            wire.Lease(helper_certificate=certificates[given]),
            masked_plan(),
            pinned,
            authority=authority.certificate,
            now=time.time() + later_s,
        )

    assert refused.value.code == code


def test_an_owner_is_told_whether_the_helper_is_pinned() -> None:
    authority, helper, other = parties()
    ca, der = authority.certificate, helper.certificates.wrapping

    good, told = helper_in_words(der, {pin_of(helper)}, authority=ca)
    assert good
    assert pin_of(helper) in told
    assert "somebody else than runs the coordinator" in told
    good, told = helper_in_words(der, {pin_of(other)}, authority=ca)
    assert not good
    assert f"the helper {pin_of(helper)}, which floor.toml does not pin" in told
    assert helper_in_words(b"", None, authority=ca)[0]
