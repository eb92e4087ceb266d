"""Each method's steps against arithmetic on two numbers; the loss is (body + head - x)²/2."""

import pytest

from edge_client.personalisation.head_first import FedRepHalf
from edge_client.personalisation.own_model import DittoHalf, PFedMeHalf
from edge_client.personalisation.plain import PlainHalf
from edge_client.personalisation.proximal import FedProxHalf
from models.settings.personalisation import DittoSettings, FedProxSettings, PFedMeSettings
from models.vector.schema import Role
from tests.edge_client.personalisation.tiny_client import hits, schema, train


def test_a_plain_method_steps_down_the_tasks_loss() -> None:
    # The gradient of either number is 1 - 3 = -2.
    learnt, held = train(PlainHalf(), body=1.0, examples=[2.0, 4.0], learning_rate=0.1)

    assert held == pytest.approx({"body": 1.2, "head": 0.2})
    # (1² + 3²) / 2 / 2.
    assert learnt.mean_loss == pytest.approx(2.5)
    assert learnt.extras == {}


def test_fedprox_is_pulled_back_to_what_was_received() -> None:
    # Step 1 from (1, 0): gradient -2, no pull yet: (1.2, 0.2).
    # Step 2: gradient 1.4 - 3 = -1.6, pull 0.5·0.2 = 0.1: both move by 0.15.
    half = FedProxHalf(FedProxSettings(proximal_strength=0.5))

    _, held = train(half, body=1.0, examples=[3.0], learning_rate=0.1, epochs=2)

    assert held == pytest.approx({"body": 1.35, "head": 0.35})


def test_fedrep_trains_the_head_and_then_the_body() -> None:
    # x = 1, step 0.5. Head: 0 -> 0.5 -> 0.75. Body: gradient 0.75 - 1, so 0 -> 0.125.
    learnt, held = train(
        FedRepHalf(), examples=[1.0], learning_rate=0.5, epochs=3, head_role=Role.PERSONAL
    )

    assert held == pytest.approx({"body": 0.125, "head": 0.75})
    # Halves of 1, 1/4 and 1/16.
    assert learnt.mean_loss == pytest.approx((1 / 2 + 1 / 8 + 1 / 32) / 3)


def test_pfedme_sends_its_copy_and_keeps_its_own_model() -> None:
    # λ = 2, K = 2, both steps 0.1, η = 0.05, x = 4, from w = θ = (1, 1).
    # θ: gradient 2 - 4 = -2, no pull: 1.2 each. Then 2.4 - 4 = -1.6 and 2·0.2 = 0.4: 1.32 each.
    # w: 1 + 0.05·2·0.32 = 1.032 each.
    half = PFedMeHalf(PFedMeSettings(attraction=2.0, inner_steps=2, inner_learning_rate=0.1))

    learnt, held = train(half, body=1.0, head=1.0, examples=[4.0], learning_rate=0.05)

    assert held == pytest.approx({"body": 1.032, "head": 1.032})
    assert {name: float(value) for name, value in learnt.extras.items()} == pytest.approx(
        {"own.body": 1.32, "own.head": 1.32}
    )


def test_pfedme_does_not_set_its_own_model_back_between_batches() -> None:
    # As above with a second epoch. From θ = 1.32, w = 1.032 (each):
    # θ: 2.64 - 4 + 2·0.288 = -0.784: 1.3984. Then 2.7968 - 4 + 2·0.3664 = -0.4704: 1.44544.
    # w: 1.032 + 0.1·(1.44544 - 1.032) = 1.073344.
    half = PFedMeHalf(PFedMeSettings(attraction=2.0, inner_steps=2, inner_learning_rate=0.1))

    learnt, held = train(half, body=1.0, head=1.0, examples=[4.0], learning_rate=0.05, epochs=2)

    assert held == pytest.approx({"body": 1.073344, "head": 1.073344})
    assert float(learnt.extras["own.body"]) == pytest.approx(1.44544)


def test_pfedme_starts_from_what_was_received_whatever_it_keeps() -> None:
    half = PFedMeHalf(PFedMeSettings(attraction=2.0, inner_steps=2, inner_learning_rate=0.1))
    kept = {"own.body": 50.0, "own.head": -7.0}

    _, held = train(half, body=1.0, head=1.0, examples=[4.0], learning_rate=0.05, extras=kept)

    assert held == pytest.approx({"body": 1.032, "head": 1.032})


def test_ditto_trains_its_own_model_beside_the_global_one() -> None:
    # Global from (1, 0): gradient -2, so (1.2, 0.2). Own from (0, 0): gradient -3 and pull
    # 0.5·(0 - 1) on the body, 0 on the head: (0.35, 0.3).
    half = DittoHalf(DittoSettings(proximal_strength=0.5))
    kept = {"own.body": 0.0, "own.head": 0.0}

    learnt, held = train(half, body=1.0, examples=[3.0], learning_rate=0.1, extras=kept)

    assert held == pytest.approx({"body": 1.2, "head": 0.2})
    assert {name: float(value) for name, value in learnt.extras.items()} == pytest.approx(
        {"own.body": 0.35, "own.head": 0.3}
    )
    assert learnt.mean_loss == pytest.approx(2.0)  # The global model's: 2²/2.


@pytest.mark.parametrize(
    "half", [DittoHalf(DittoSettings()), PFedMeHalf(PFedMeSettings())], ids=["ditto", "pfedme"]
)
def test_a_client_predicts_by_its_own_model_once_it_has_one(half: DittoHalf | PFedMeHalf) -> None:
    own = {"own.body": 2.0, "own.head": 3.0}

    assert hits(half, 5.0, body=1.0, head=0.0, extras=own) == 1
    assert hits(half, 1.0, body=1.0, head=0.0, extras=own) == 0
    # One that never trained predicts as everyone's model.
    assert hits(half, 1.0, body=1.0, head=0.0) == 1


def test_an_own_model_has_every_tensor_under_another_name() -> None:
    assert [t.name for t in DittoHalf(DittoSettings()).extra_tensors(schema())] == [
        "own.body",
        "own.head",
    ]
