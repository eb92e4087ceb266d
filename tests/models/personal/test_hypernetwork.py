import math

import pytest
import torch
from torch.testing import assert_close

from models.personal.hypernetwork import Hypernetwork, draw_embedding
from models.settings.hypernetwork import HypernetworkSettings, hypernetwork_schema
from models.vector.schema import Role, Schema, TensorSpec

OUTPUTS = ("mixture", "literal")


def generated(*shapes: tuple[int, ...]) -> Schema:
    return Schema(
        tuple(
            TensorSpec(name=f"t{index}", shape=shape, layer=f"t{index}", role=Role.GENERATED)
            for index, shape in enumerate(shapes)
        )
    )


# A convolution with its bias, a projection: what pFedHN and FedTP generate.
SCHEMA = generated((4, 3, 2, 2), (4,), (6, 5))
PROJECTIONS = generated(*[(1536, 128)] * 8)


def small(**changes: object) -> HypernetworkSettings:
    return HypernetworkSettings(embedding_size=5, hidden_size=7, basis_size=3, **changes)  # type: ignore[arg-type]  # one field by name


def made(settings: HypernetworkSettings, schema: Schema = SCHEMA) -> Hypernetwork:
    hypernetwork = Hypernetwork(settings, schema)
    initial = torch.linspace(-1, 1, schema.element_count)
    hypernetwork.initialise(torch.Generator().manual_seed(3), initial)
    return hypernetwork


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_literal_hypernetwork_of_the_papers_vit_has_237_million_parameters() -> None:
    settings = HypernetworkSettings(output="literal")

    # 32*150 + 150, three times 150*150 + 150, and for each block 150 weights and a bias for every
    # one of to_qkv's 3 * 512 * 128 entries.
    expected = 4_950 + 3 * 22_650 + 8 * 151 * 196_608
    assert expected == 237_575_364
    assert hypernetwork_schema(settings, PROJECTIONS).element_count == expected


def test_the_default_output_has_at_most_a_tenth_of_the_literal_ones_parameters() -> None:
    body = 4_950 + 3 * 22_650
    default = hypernetwork_schema(HypernetworkSettings(), PROJECTIONS).element_count - body

    # For each block a base, 14 directions, and 14 * 150 + 14 numbers that mix them.
    assert default == 8 * (15 * 196_608 + 2_114)
    assert default <= (8 * 151 * 196_608) / 10


def test_one_value_through_one_unit_is_made_and_pulled_back_by_hand() -> None:
    settings = HypernetworkSettings(embedding_size=1, hidden_size=1, output="literal")
    hypernetwork = Hypernetwork(settings, generated((1,)))
    # Weights 1, biases 0, but 3 and 0.25 in the output layer: z = 2 gives 3 * 2 + 0.25.
    hypernetwork.phi.copy_(torch.tensor([1.0, 0.0] * 4 + [3.0, 0.25]))

    value = hypernetwork.generate(torch.tensor([2.0]))
    pulled = hypernetwork.pull_back(torch.tensor([2.0]), torch.tensor([0.5]))

    assert value.tolist() == [6.25]
    # The output's gradient is -0.5. The output layer sees 2 and 1; what lies before it sees
    # -0.5 * 3 = -1.5, times the 2 that comes in for each weight and 1 for each bias.
    assert pulled.phi.tolist() == [-3.0, -1.5] * 4 + [-1.0, -0.5]
    assert pulled.embedding.tolist() == [-1.5]


@pytest.mark.parametrize("spectral_norm", [False, True])
@pytest.mark.parametrize("output", OUTPUTS)
def test_the_product_agrees_with_finite_differences(output: str, *, spectral_norm: bool) -> None:
    hypernetwork = made(small(output=output, spectral_norm=spectral_norm))
    embedding, update = draw(5, seed=1), draw(SCHEMA.element_count, seed=2)
    phi = hypernetwork.phi.clone()
    step = 1e-2

    def value(phi_shift: torch.Tensor, row_shift: torch.Tensor) -> float:
        hypernetwork.phi.copy_(phi + phi_shift)
        return -float(hypernetwork.generate(embedding + row_shift).double() @ update.double())

    pulled = hypernetwork.pull_back(embedding, update)
    for seed in range(3):
        # Directions of length 1: float32 leaves about 1e-5 / 1e-2 of the difference uncertain.
        along, row = draw(len(phi), seed=seed + 10), draw(5, seed=seed + 20)
        along, row = along / along.norm(), row / row.norm()
        expected = float(along @ pulled.phi + row @ pulled.embedding)
        found = value(step * along, step * row) - value(-step * along, -step * row)
        assert found / (2 * step) == pytest.approx(expected, rel=0.02, abs=0.02)


@pytest.mark.parametrize("output", OUTPUTS)
def test_with_spectral_norm_no_layer_stretches_whatever_its_matrix_is(output: str) -> None:
    hypernetwork = made(small(output=output, spectral_norm=True))
    plain = made(small(output=output))
    embedding = draw(5, seed=1)
    before = hypernetwork.generate(embedding)
    assert not torch.allclose(before, plain.generate(embedding), atol=1e-3)

    for hypernet in (hypernetwork, plain):
        for name, where in hypernet.schema.slices.items():
            if name.endswith(".weight"):
                hypernet.phi[where] *= 3  # In place, as a step is.

    assert_close(hypernetwork.generate(embedding), before)
    assert not torch.allclose(plain.generate(embedding), before, atol=1e-3)
    for spec in hypernetwork.schema.tensors:
        if spec.name.endswith(".weight"):
            used = hypernetwork.used_phi[hypernetwork.schema.slices[spec.name]].view(spec.shape)
            assert float(torch.linalg.matrix_norm(used, ord=2)) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_step_against_the_gradient_takes_the_client_where_it_trained_to(output: str) -> None:
    hypernetwork = made(small(output=output))
    embedding, wanted = draw(5, seed=4), draw(SCHEMA.element_count, seed=5)

    def distance(sign: float) -> float:
        """Return how far the client's tensors are from the wanted ones after three steps."""
        fresh, row = made(small(output=output)), embedding.clone()
        for _ in range(3):
            update = 0.5 * (wanted - fresh.generate(row))  # Local training goes half the way.
            pulled = fresh.pull_back(row, update)
            fresh.phi.sub_(pulled.phi, alpha=sign * 0.005)
            row -= sign * 0.005 * pulled.embedding
        return float((wanted - fresh.generate(row)).norm())

    start = float((wanted - hypernetwork.generate(embedding)).norm())
    # The paper's sign moves away instead.
    assert distance(1.0) < 0.99 * start
    assert distance(-1.0) > 1.01 * start


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_embeddings_own_gradient_is_the_same_without_phis(output: str) -> None:
    hypernetwork = made(small(output=output))
    embedding, update = draw(5, seed=1), draw(SCHEMA.element_count, seed=2)

    alone = hypernetwork.pull_back_to_embedding(embedding, update)

    assert_close(alone, hypernetwork.pull_back(embedding, update).embedding)


def test_a_mixture_starts_around_the_models_own_start_and_differs_between_clients() -> None:
    schema = generated((40, 50))
    hypernetwork = Hypernetwork(HypernetworkSettings(), schema)
    initial = torch.linspace(-1, 1, 2000)
    hypernetwork.initialise(torch.Generator().manual_seed(3), initial)

    made_by = torch.stack([hypernetwork.generate(draw(32, seed=seed)) for seed in range(50)])

    # A mixture of 14 directions, each 1/√14 of the start's size, whose shares square to about 1.
    size = float(initial.square().mean().sqrt())
    assert float((made_by - initial).square().mean().sqrt()) < 0.5 * size
    assert float(made_by.std(dim=0).mean()) > 0.02 * size


def test_a_literal_output_starts_as_any_linear_layer_of_its_width() -> None:
    hypernetwork = made(small(output="literal"))
    weight = hypernetwork.phi[hypernetwork.schema.slices["outputs.2.weight"]]

    # U(-1/√7, 1/√7) over 210 draws: the largest lies in the outer tenth but for a chance of 2e-10.
    assert 0.9 / math.sqrt(7) < float(weight.abs().max()) <= 1 / math.sqrt(7)


def test_the_same_seed_draws_the_same_hypernetwork() -> None:
    assert torch.equal(made(small()).phi, made(small()).phi)


def test_a_first_embedding_follows_from_run_and_name_alone() -> None:
    ada = draw_embedding(32, run_seed=1, client_name="ada")

    assert torch.equal(ada, draw_embedding(32, run_seed=1, client_name="ada"))
    assert not torch.equal(ada, draw_embedding(32, run_seed=2, client_name="ada"))
    assert not torch.equal(ada, draw_embedding(32, run_seed=1, client_name="bob"))


@pytest.mark.parametrize(
    ("embedding", "update"),
    [
        (torch.zeros(4), torch.zeros(SCHEMA.element_count)),
        (torch.zeros(5, dtype=torch.float64), torch.zeros(SCHEMA.element_count)),
        (torch.zeros(5), torch.zeros(SCHEMA.element_count + 1)),
    ],
)
def test_vectors_that_do_not_fit_are_refused(embedding: torch.Tensor, update: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="must be float32 of shape"):
        made(small()).pull_back(embedding, update)


def test_a_hypernetwork_with_nothing_to_generate_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one tensor"):
        Hypernetwork(small(), Schema(()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"embedding_size": 0},
        {"hidden_size": 0},
        {"basis_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"gradient_clipping_norm": 0.0},
        {"client_gradient_norm": math.inf},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        HypernetworkSettings(**wrong)  # type: ignore[arg-type]  # one wrong value at a time


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_grown_model_keeps_what_was_made_and_new_tensors_get_layers_of_their_own(
    output: str,
) -> None:
    before = made(small(output=output))
    first, second, third = SCHEMA.tensors
    new, zero = (
        TensorSpec(name=name, shape=(4,), layer=name, role=Role.GENERATED) for name in ("n", "z")
    )
    # In the middle, as the second layer of an encoder comes before the first of a decoder.
    larger = Schema((first, new, zero, second, third))
    initial = torch.zeros(larger.element_count)
    initial[larger.slices["n"]] = torch.tensor([1.0, -2.0, 3.0, -4.0])
    embedding = draw(5, seed=4)

    grown = before.grown(larger, initial, torch.Generator().manual_seed(7))

    expected, after = before.generate(embedding), grown.generate(embedding)
    for name, where in SCHEMA.slices.items():
        assert torch.equal(after[larger.slices[name]], expected[where])
    # What writes to the residual stream starts at zero for every client.
    assert not after[larger.slices["z"]].any()
    made_new = after[larger.slices["n"]]
    assert made_new.any()
    assert not torch.equal(made_new, grown.generate(draw(5, seed=5))[larger.slices["n"]])
    # And it learns: its part of the gradient is not zero.
    pulled = grown.pull_back(embedding, torch.ones(larger.element_count)).phi
    index = list(larger.slices).index("z")
    learns = [name for name in grown.schema.slices if name.startswith(f"outputs.{index}.")]
    assert any(bool(pulled[grown.schema.slices[name]].any()) for name in learns)


def test_what_belongs_to_a_hypernetwork_is_carried_to_its_places_in_a_grown_one() -> None:
    before = made(small())
    larger = generated((4, 3, 2, 2), (4,), (6, 5), (2, 2))
    grown = before.grown(larger, torch.ones(larger.element_count), torch.Generator())
    momentum = torch.arange(1.0, before.schema.element_count + 1)

    carried = before.carried(momentum, grown, torch.zeros_like(grown.phi))

    # Output layers lie in the order of the tensors: the new one's is the last.
    assert torch.equal(carried[: len(momentum)], momentum)
    assert not carried[len(momentum) :].any()
    with pytest.raises(ValueError, match=r"must keep its tensors, \['t3'\] are gone"):
        grown.grown(SCHEMA, torch.ones(SCHEMA.element_count), torch.Generator())
