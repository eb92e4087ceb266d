"""The order of clipping, noise and compression, and what is fed back."""

from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from edge_client.training.outgoing import Outgoing, outgoing_update
from models.compression.update_format import update_format
from models.settings.compression import CompressionSettings
from models.settings.model import schema_of
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import LocalNoise
from privacy.noise.settings import NoNoise, PrivacySettings
from tests.edge_client.training_plan import MODEL, make_plan

SCHEMA = schema_of(MODEL)
TENSORS = list(SCHEMA.slices.values())
COUNT = SCHEMA.element_count
CLIPPED = NoNoise(clipping_norm=1.0)
LOCAL = LocalNoise(clipping_norm=1.0, noise_multiplier=1.0, delta=1e-5, epsilon_budget=100.0)


def update(seed: int = 0, norm: float = 0.9) -> Tensor:
    drawn = torch.randn(COUNT, generator=torch.Generator().manual_seed(seed))
    return drawn * (norm / float(drawn.norm()))


def sent(
    trained: Tensor,
    *,
    uplink: Any = "int4",
    error_feedback: bool = False,
    privacy: PrivacySettings = CLIPPED,
    round_number: int = 1,
    residual: Tensor | None = None,
) -> Outgoing:
    settings = CompressionSettings(uplink=uplink, error_feedback=error_feedback)
    plan = msgspec.structs.replace(make_plan(privacy=privacy), compression=settings)
    return outgoing_update(
        plan,
        trained,
        TENSORS,
        update_format(plan, 1),
        round_number=round_number,
        client_name="a",
        residual=residual,
    )


def test_what_arrives_is_what_the_payload_holds() -> None:
    outgoing = sent(update())

    plan = msgspec.structs.replace(
        make_plan(privacy=CLIPPED), compression=CompressionSettings(uplink="int4")
    )
    assert outgoing.payload is not None
    assert (outgoing.update.numpy() == update_format(plan, 1).decode(outgoing.payload)).all()
    assert not torch.equal(outgoing.update, update())


def test_without_compression_nothing_is_encoded_and_nothing_is_lost() -> None:
    plan = make_plan(privacy=CLIPPED)

    outgoing = outgoing_update(
        plan, update(), TENSORS, update_format(plan, 1), round_number=1, client_name="a"
    )

    assert torch.equal(outgoing.update, update())
    assert outgoing.payload is None
    assert outgoing.residual is None


def test_each_round_rounds_with_draws_of_its_own() -> None:
    first, again, second = (sent(update(), round_number=number) for number in (1, 1, 2))

    assert torch.equal(first.update, again.update)
    assert not torch.equal(first.update, second.update)


def test_an_update_is_clipped_before_it_is_rounded() -> None:
    outgoing = sent(update(norm=10.0), uplink="bfloat16")

    assert outgoing.norm == pytest.approx(10.0, rel=1e-6)
    # 8 bits of each value: at most 2^-7 of it.
    assert float(outgoing.update.norm()) == pytest.approx(1.0, rel=2**-7)


def test_noise_is_drawn_before_rounding_and_not_after() -> None:
    # With noise after rounding no value would be a whole number of steps.
    outgoing = sent(update(), uplink="int8", privacy=LOCAL)

    scale = float(outgoing.update[:256].abs().max()) / 127
    steps = outgoing.update[:256].double() / scale
    assert float((steps - steps.round()).abs().max()) < 1e-3
    assert float(outgoing.update.norm()) > 10.0  # Far beyond the clip: the noise is in it.


def test_whether_an_update_fitted_is_told_exactly() -> None:
    adaptive = NoNoise(clipping_norm=1.0, adaptive_clipping=AdaptiveClipping(count_noise_std=0.5))

    fits, does_not = (sent(update(norm=norm), privacy=adaptive) for norm in (0.5, 2.0))

    assert (float(fits.update[-1]), float(does_not.update[-1])) == (1.0, 0.0)


def test_without_feedback_nothing_is_kept() -> None:
    assert sent(update()).residual is None


def test_what_was_lost_is_what_did_not_arrive() -> None:
    outgoing = sent(update(), error_feedback=True)

    assert outgoing.residual is not None
    torch.testing.assert_close(outgoing.update + outgoing.residual, update())
    assert float(outgoing.residual.norm()) > 0


def test_what_was_fed_back_arrives_in_the_end() -> None:
    # The same step each round: after n rounds the sum is off by one residual, not by n of them.
    rounds, step = 20, update(norm=0.5)
    arrived, residual = torch.zeros(COUNT), None
    for number in range(1, rounds + 1):
        outgoing = sent(step, error_feedback=True, round_number=number, residual=residual)
        arrived, residual = arrived + outgoing.update, outgoing.residual

    once = sent(step, error_feedback=True)
    assert once.residual is not None
    assert residual is not None
    torch.testing.assert_close(arrived + residual, rounds * step, atol=1e-4, rtol=0)
    without_feedback = float((rounds * once.residual).norm())
    assert float((arrived - rounds * step).norm()) < without_feedback / 5


def test_what_is_fed_back_never_reaches_beyond_the_clip() -> None:
    outgoing = sent(update(), error_feedback=True, residual=update(seed=1, norm=5.0))

    # Rounding moves each value by half a step of 1/7 of the block's largest at most.
    assert float(outgoing.update.norm()) < 1.0 + 0.5 / 7 * COUNT**0.5
    assert outgoing.norm > 4.0
    assert outgoing.residual is not None
    assert float(outgoing.residual.norm()) <= 2.0


def test_what_the_coordinator_clips_off_again_is_fed_back_too() -> None:
    # One large value and many just above half a step: to the nearest, they nearly double.
    trained = torch.full((COUNT,), 0.51 / 7)
    trained[::256] = 1.0
    trained /= trained.norm()
    outgoing = sent(trained, error_feedback=True)

    assert outgoing.residual is not None
    length = float(outgoing.update.norm())
    assert length > 1.05
    torch.testing.assert_close(outgoing.residual, trained - outgoing.update / length)


def test_what_is_not_sent_comes_later() -> None:
    # One value of two a round, and nothing new after the first: all of it arrives.
    settings = CompressionSettings(
        uplink="none", keep="top", keep_fraction=0.5, error_feedback=True
    )
    plan = msgspec.structs.replace(make_plan(privacy=CLIPPED), compression=settings)
    arrived, residual = torch.zeros(COUNT), None
    left = []
    for number in range(1, 3):
        outgoing = outgoing_update(
            plan,
            update() if number == 1 else torch.zeros(COUNT),
            TENSORS,
            update_format(plan, 1),
            round_number=number,
            client_name="a",
            residual=residual,
        )
        arrived, residual = arrived + outgoing.update, outgoing.residual
        assert residual is not None
        left.append(float(residual.norm()))

    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    torch.testing.assert_close(arrived, update())
