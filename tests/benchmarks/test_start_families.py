"""The families that a start is compared over are of one size, and carry their state."""

import math

import pytest
import torch

from benchmarks.start_families import FAMILIES, Candidate, Cifg
from models.networks.gru_lm import GruLm
from models.settings.model import GruLmSettings
from models.text.vocabulary import SHIPPED_SIZE

WORDS = 20


def small(name: str) -> Candidate:
    layer, embedding, hidden = FAMILIES[name]
    network = Candidate(layer, WORDS, embedding // 50, hidden // 50)
    network.initialise(torch.Generator().manual_seed(1))
    return network.eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_within_a_hundredth_as_large_as_the_shipped_gru(name: str) -> None:
    layer, embedding, hidden = FAMILIES[name]
    shipped = GruLmSettings(vocabulary_size=SHIPPED_SIZE, hidden_size=400).schema().element_count
    with torch.device("meta"):
        network = Candidate(layer, SHIPPED_SIZE, embedding, hidden)

    size = sum(parameter.numel() for parameter in network.parameters())

    assert size == pytest.approx(shipped, rel=0.01)


@pytest.mark.parametrize("name", FAMILIES)
def test_text_read_in_two_windows_is_text_read_in_one(name: str) -> None:
    network = small(name)
    tokens = torch.randint(WORDS, (3, 8), generator=torch.Generator().manual_seed(2))

    whole, last = network.features(tokens, None)
    first, carried = network.features(tokens[:, :5], None)
    second, end = network.features(tokens[:, 5:], carried)

    assert torch.allclose(torch.cat([first, second], dim=1), whole, atol=1e-6)
    assert last is not None and end is not None
    assert torch.allclose(last, end, atol=1e-6)
    assert not torch.allclose(network.features(tokens[:, 5:], None)[0], second, atol=1e-3)


def test_the_gru_is_the_family_that_ships() -> None:
    network = small("gru")
    shipped = GruLm(GruLmSettings(vocabulary_size=WORDS, hidden_size=8)).eval()
    with torch.no_grad():
        for own, other in zip(network.parameters(), shipped.parameters(), strict=True):
            other.copy_(own)
    tokens = torch.arange(6)[None]

    assert torch.equal(network.features(tokens, None)[0], shipped.features(tokens, None)[0])


def test_coupled_gates_keep_what_they_do_not_take() -> None:
    """One unit: c' = f c + (1 - f) g and h' = o tanh(c'), by hand."""
    layer = Cifg(1, 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.read.bias.copy_(torch.tensor([math.log(3), 0.0, math.atanh(0.5)]))

    hidden, _ = layer(torch.zeros(1, 1, 1), torch.tensor([[[0.0, 1.0]]]))

    # Three quarters of the cell's 1 and one quarter of 0.5, seen through a half-open gate.
    assert float(hidden.detach()) == pytest.approx(0.5 * math.tanh(0.75 * 1 + 0.25 * 0.5))
