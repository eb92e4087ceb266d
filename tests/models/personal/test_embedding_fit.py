import math
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.personal.embedding_fit import DivergedFitError, best_start, fit_embedding
from models.personal.hypernetwork import Hypernetwork
from models.settings.hypernetwork import EmbeddingFitSettings, HypernetworkSettings
from models.vector.schema import Schema, TensorSpec

SCHEMA = Schema((TensorSpec(name="w", shape=(8, 3), layer="w"),))
LocalTraining = Callable[[Tensor], Tensor]


def trained_hypernetwork() -> Hypernetwork:
    settings = HypernetworkSettings(embedding_size=4, hidden_size=16, basis_size=4)
    hypernetwork = Hypernetwork(settings, SCHEMA)
    hypernetwork.initialise(torch.Generator().manual_seed(5), torch.ones(24))
    return hypernetwork


def towards(wanted: Tensor) -> LocalTraining:
    """Train half the way to what this client's examples want."""
    return lambda given: 0.5 * (wanted - given)


def test_one_unit_is_fitted_by_hand() -> None:
    hypernetwork = Hypernetwork(
        HypernetworkSettings(embedding_size=1, hidden_size=1, output="literal"),
        Schema((TensorSpec(name="w", shape=(1,), layer="w"),)),
    )
    # w = 3 z for z > 0. Training moves w by 2 each time, so z's gradient is -2 * 3 = -6.
    hypernetwork.phi.copy_(torch.tensor([1.0, 0.0] * 4 + [3.0, 0.0]))
    settings = EmbeddingFitSettings(epochs=2, learning_rate=0.5)
    seen: list[tuple[int, float]] = []

    fitted = fit_embedding(
        hypernetwork,
        torch.tensor([1.0]),
        lambda epoch: [lambda given: torch.tensor([2.0])],
        settings,
        after_epoch=lambda epoch, made: seen.append((epoch, float(made))),
    )

    # Both gradients are -6, so Adam's two steps are as long as the learning rate: 1.5, then 2.
    assert fitted.tolist() == pytest.approx([2.0])
    assert [epoch for epoch, _ in seen] == [1, 2]
    assert [made for _, made in seen] == pytest.approx([4.5, 6.0])


def test_a_fit_starts_from_the_draw_that_loses_least() -> None:
    hypernetwork = Hypernetwork(
        HypernetworkSettings(embedding_size=1, hidden_size=1, output="literal"),
        Schema((TensorSpec(name="w", shape=(1,), layer="w"),)),
    )
    # w = 3 z for z > 0, and 0 below: of the losses |w - 5| = 5, 1, 4 and 1 the second is least.
    hypernetwork.phi.copy_(torch.tensor([1.0, 0.0] * 4 + [3.0, 0.0]))
    starts = [torch.tensor([z]) for z in (-1.0, 2.0, 3.0, 2.0)]

    chosen = best_start(hypernetwork, starts, lambda made: abs(float(made) - 5))

    assert chosen is starts[1]


def test_one_start_is_taken_as_it_is() -> None:
    def loss(made: Tensor) -> float:
        raise AssertionError("there is nothing to choose from")

    start = torch.zeros(4)

    assert best_start(trained_hypernetwork(), [start], loss) is start


def test_how_far_training_went_says_nothing_of_how_far_the_embedding_goes() -> None:
    hypernetwork, wanted = trained_hypernetwork(), torch.ones(24)

    def fitted(share: float) -> Tensor:
        return fit_embedding(
            hypernetwork,
            torch.zeros(4),
            lambda epoch: [lambda given: share * (wanted - given)],
            EmbeddingFitSettings(learning_rate=0.2),
        )

    short, far = fitted(0.001), fitted(1.0)

    assert_close(short, far)
    assert float(far.abs().max()) == pytest.approx(0.2)


def test_a_new_client_is_found_where_an_embedding_fits_it() -> None:
    hypernetwork = trained_hypernetwork()
    wanted = hypernetwork.generate(torch.tensor([1.0, -1.0, 0.5, 0.0]))
    start = torch.zeros(4)
    distances: list[float] = []

    fit_embedding(
        hypernetwork,
        start,
        lambda epoch: [towards(wanted)] * 10,
        EmbeddingFitSettings(epochs=30),
        after_epoch=lambda epoch, made: distances.append(float((made - wanted).norm())),
    )

    assert len(distances) == 30
    # Not all the way: behind a ReLU lies a hollow that no step leaves.
    assert distances[-1] < 0.2 * float((hypernetwork.generate(start) - wanted).norm())


def test_neither_the_hypernetwork_nor_the_start_changes() -> None:
    hypernetwork = trained_hypernetwork()
    phi, start = hypernetwork.phi.clone(), torch.ones(4)

    fitted = fit_embedding(
        hypernetwork, start, lambda epoch: [towards(torch.zeros(24))], EmbeddingFitSettings()
    )

    assert torch.equal(hypernetwork.phi, phi)
    assert torch.equal(start, torch.ones(4))
    assert not torch.equal(fitted, start)


def test_each_epoch_asks_for_its_own_trainings() -> None:
    asked: list[int] = []

    def trainings(epoch: int) -> Iterable[LocalTraining]:
        asked.append(epoch)
        return [towards(torch.zeros(24))]

    fit_embedding(trained_hypernetwork(), torch.zeros(4), trainings, EmbeddingFitSettings(epochs=3))

    assert asked == [1, 2, 3]


def test_a_fit_that_diverges_says_so() -> None:
    with pytest.raises(DivergedFitError, match="lower learning_rate"):
        fit_embedding(
            trained_hypernetwork(),
            torch.ones(4),
            lambda epoch: [towards(torch.zeros(24))] * 50,
            EmbeddingFitSettings(learning_rate=1e30),
        )


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"start_count": 0}, {"learning_rate": math.inf}])
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EmbeddingFitSettings(**wrong)  # type: ignore[arg-type]  # one wrong value at a time
