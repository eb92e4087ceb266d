import math
from collections.abc import Mapping

import msgspec
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.personal.hypernetwork import Hypernetwork, draw_embedding
from models.settings.hypernetwork import HypernetworkSettings
from models.vector.schema import Role, Schema, TensorSpec
from privacy.clipping.clip import UnusableUpdateError
from server.personalisation.hypernetwork import HypernetworkHalf
from server.personalisation.round_terms import RoundTerms

SEED = 7
SCHEMA = Schema(
    (
        TensorSpec(name="a.to_qkv.weight", shape=(6, 2), layer="a", role=Role.GENERATED),
        TensorSpec(name="b.to_qkv.weight", shape=(6, 2), layer="b", role=Role.GENERATED),
    )
)
INITIAL = torch.linspace(-1, 1, 24)
BY_EXAMPLES = RoundTerms(slot_count=2, weighting="examples")
STATE = "client/"


def settings(**changes: object) -> HypernetworkSettings:
    tiny = HypernetworkSettings(embedding_size=3, hidden_size=5, basis_size=2)
    return msgspec.structs.replace(tiny, **changes)


def half(**changes: object) -> HypernetworkHalf:
    return HypernetworkHalf(settings(**changes), SCHEMA, run_seed=SEED, initial=INITIAL)


def update(seed: int) -> Tensor:
    return torch.randn(24, generator=torch.Generator().manual_seed(seed))


def play(
    served: HypernetworkHalf,
    taken: Mapping[str, tuple[Tensor, int]],
    terms: RoundTerms = BY_EXAMPLES,
) -> None:
    served.begin(terms)
    for name, (generated_update, count) in taken.items():
        served.take(name, generated_update, count)
    served.close()


def first_phi(output: str = "mixture") -> Tensor:
    fresh = Hypernetwork(settings(output=output), SCHEMA)
    fresh.initialise(torch.Generator().manual_seed(SEED), INITIAL)
    return fresh.phi


def same_bits(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return list(first) == list(second) and all(
        torch.equal(tensor, second[name]) for name, tensor in first.items()
    )


@pytest.mark.parametrize("output", ["mixture", "literal"])
def test_two_rounds_step_as_the_frameworks_sgd_over_the_whole_cohort_at_once(output: str) -> None:
    # A second implementation: one graph over the cohort, p_i in front, torch's optimiser.
    reference = Hypernetwork(settings(output=output), SCHEMA)
    leaves = [
        first_phi(output)[where].view(spec.shape).clone().requires_grad_()
        for spec, where in zip(
            reference.schema.tensors, reference.schema.slices.values(), strict=True
        )
    ]
    rows = {
        name: draw_embedding(3, run_seed=SEED, client_name=name).requires_grad_()
        for name in ("ada", "bob")
    }
    optimiser = torch.optim.SGD(
        [*leaves, *rows.values()], lr=0.01, momentum=0.9, weight_decay=0.001
    )
    served = half(output=output)
    for seed in (1, 2):
        updates = {"ada": (update(seed), 30), "bob": (update(seed + 10), 10)}
        optimiser.zero_grad()
        named = dict(zip(reference.schema.slices, leaves, strict=True))
        loss = sum(
            -share * (reference._forward(named, rows[name]) @ updates[name][0])
            for name, share in (("ada", 0.75), ("bob", 0.25))
        )
        assert isinstance(loss, Tensor)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        optimiser.step()
        play(served, updates)

    state = served.state()
    assert_close(state["phi"], torch.cat([leaf.detach().reshape(-1) for leaf in leaves]))
    for name, row in rows.items():
        assert_close(state[STATE + name][0], row.detach())


def test_rows_of_absent_clients_never_move_by_a_bit() -> None:
    served = half()
    play(served, {"ada": (update(1), 1), "bob": (update(2), 1)})
    before = served.state()

    play(served, {"ada": (update(3), 1)})
    play(served, {"ada": (update(4), 1), "cy": (update(5), 1)})

    after = served.state()
    # Bob's momentum and weight decay would have moved him three times.
    assert float(before["client/bob"][1].abs().max()) > 0
    assert torch.equal(after["client/bob"], before["client/bob"])
    assert not torch.equal(after["client/ada"], before["client/ada"])


def test_who_comes_first_changes_nobodys_tensors() -> None:
    there, back = half(), half()

    made = {name: there.parameters_for(name) for name in ("ada", "bob", "cy")}
    again = {name: back.parameters_for(name) for name in ("cy", "bob", "ada")}

    assert all(torch.equal(made[name], again[name]) for name in made)
    assert not torch.equal(made["ada"], made["bob"])


def test_asking_for_a_persons_tensors_leaves_no_trace() -> None:
    served = half()
    before = served.state()

    served.parameters_for("ada")

    assert same_bits(served.state(), before)


@pytest.mark.parametrize("spectral_norm", [False, True])
def test_a_half_that_took_up_a_state_goes_on_in_the_same_bits(*, spectral_norm: bool) -> None:
    first, second = half(spectral_norm=spectral_norm), half(spectral_norm=spectral_norm)
    play(first, {"ada": (update(1), 2), "bob": (update(2), 3)})
    second.load(first.state())

    for served in (first, second):
        play(served, {"bob": (update(3), 1), "cy": (update(4), 1)})

    assert same_bits(first.state(), second.state())
    assert torch.equal(first.parameters_for("ada"), second.parameters_for("ada"))


def test_a_state_of_another_hypernetwork_is_refused_and_nothing_changes() -> None:
    served = half()
    before = served.state()

    with pytest.raises(ValueError, match="another hypernetwork"):
        served.load(half(basis_size=1).state())

    assert same_bits(served.state(), before)


def test_what_a_failed_attempt_took_is_forgotten() -> None:
    plain, retried = half(), half()
    play(plain, {"ada": (update(1), 1)})

    retried.begin(BY_EXAMPLES)
    retried.take("bob", update(2), 9)
    play(retried, {"ada": (update(1), 1)})

    assert same_bits(retried.state(), plain.state())


def test_an_empty_place_weighs_as_a_client_that_learnt_nothing() -> None:
    # Without momentum, two of four places are half the step of two of two.
    full, half_full = half(momentum=0.0, weight_decay=0.0), half(momentum=0.0, weight_decay=0.0)
    taken = {"ada": (update(1), 5), "bob": (update(2), 1)}

    play(full, taken, RoundTerms(slot_count=2, weighting="equal"))
    play(half_full, taken, RoundTerms(slot_count=4, weighting="equal"))

    moved = full.state()["phi"] - first_phi()
    assert_close(half_full.state()["phi"] - first_phi(), moved / 2, atol=1e-6, rtol=1e-3)
    start = draw_embedding(3, run_seed=SEED, client_name="ada")
    assert_close(
        half_full.state()["client/ada"][0] - start,
        (full.state()["client/ada"][0] - start) / 2,
        atol=1e-6,
        rtol=1e-3,
    )


def test_fixed_embeddings_stay_as_they_were_drawn() -> None:
    served = half(embeddings="fixed")

    play(served, {"ada": (update(1), 1)})

    start = draw_embedding(3, run_seed=SEED, client_name="ada")
    assert torch.equal(served.state()["client/ada"], torch.stack([start, torch.zeros(3)]))
    assert not torch.equal(served.state()["phi"], first_phi())


def test_embeddings_may_take_steps_of_their_own_and_phi_takes_its_own_still() -> None:
    together, apart = (
        half(learning_rate=0.5, embedding_learning_rate=step, weight_decay=0.0)
        for step in (None, 4.0)
    )

    for served in (together, apart):
        play(served, {"ada": (update(1), 1), "bob": (update(2), 3)})

    start = draw_embedding(3, run_seed=SEED, client_name="ada")
    moved, further = (served.state()[STATE + "ada"][0] - start for served in (together, apart))
    torch.testing.assert_close(further, 8 * moved)
    assert float(moved.norm()) > 0
    assert torch.equal(together.state()["phi"], apart.state()["phi"])


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_a_step_of_embeddings_must_be_positive_and_finite(rate: float) -> None:
    with pytest.raises(ValueError, match=r"embedding_learning_rate must be > 0 and finite"):
        settings(embedding_learning_rate=rate)


def test_a_clipped_gradient_moves_phi_and_each_row_no_further_than_its_norm() -> None:
    # A step of learning rate 1 without momentum and decay is the gradient itself.
    served = half(learning_rate=1.0, momentum=0.0, weight_decay=0.0, gradient_clipping_norm=0.125)

    play(served, {"ada": (100 * update(1), 1), "bob": (100 * update(2), 1)})

    state = served.state()
    assert float((state["phi"] - first_phi()).norm()) == pytest.approx(0.125, rel=1e-3)
    for name in ("ada", "bob"):
        start = draw_embedding(3, run_seed=SEED, client_name=name)
        assert float((state[STATE + name][0] - start).norm()) == pytest.approx(0.125, rel=1e-3)


def test_one_clients_share_of_phis_gradient_has_a_limit_of_its_own() -> None:
    served = half(learning_rate=1.0, momentum=0.0, weight_decay=0.0, client_gradient_norm=0.5)

    play(
        served,
        {"ada": (1e6 * update(1), 1)},
        RoundTerms(slot_count=4, weighting="equal"),
    )

    # A quarter of the limit: one of four places.
    assert float((served.state()["phi"] - first_phi()).norm()) == pytest.approx(0.125, rel=1e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_an_update_that_cannot_be_used_is_that_clients_fault(value: float) -> None:
    served = half()
    served.begin(BY_EXAMPLES)

    with pytest.raises(UnusableUpdateError):
        served.take("ada", torch.full((24,), value), 1)


def test_a_client_has_one_update_a_round() -> None:
    served = half()
    served.begin(BY_EXAMPLES)
    served.take("ada", update(1), 1)

    with pytest.raises(ValueError, match='client "ada" must have one update a round, got two'):
        served.take("ada", update(2), 1)


def test_updates_belong_to_a_round() -> None:
    served = half()

    with pytest.raises(ValueError, match="round must be begun"):
        served.take("ada", update(1), 1)
    with pytest.raises(ValueError, match="round must be begun"):
        served.close()


@pytest.mark.parametrize("rate", ["learning_rate", "embedding_learning_rate"])
def test_a_step_beyond_float32_is_refused_and_nothing_moves(rate: str) -> None:
    served = half(**{rate: 1e38})
    before = served.state()

    with pytest.raises(ValueError, match="must be finite; lower"):
        play(served, {"ada": (1e5 * update(1), 1)})

    assert same_bits(served.state(), before)


def test_a_forgotten_client_starts_from_its_first_draw_again() -> None:
    served = half()
    first = draw_embedding(3, run_seed=SEED, client_name="ada")
    play(served, {"ada": (update(1), 1)})

    served.forget("ada")

    assert "client/ada" not in served.state()
    play(served, {"ada": (torch.zeros(24), 1)})
    # No gradient: weight decay alone moves it, by 0.01 * 0.001 of itself.
    assert_close(served.state()["client/ada"][0], first * (1 - 1e-5))
