import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.mode import CalibratedRound
from privacy.noise.registry import noise_mode
from privacy.noise.secure_gaussian import SystemKeys
from privacy.noise.tree import DerivedKeys, Node, covering_nodes

SIZE = 100_000
SECRET = bytes(range(32))


def settings(restart_rounds: int | None = None) -> TreeNoise:
    return TreeNoise(
        clipping_norm=1.0,
        noise_multiplier=2.0,
        delta=1e-6,
        epsilon_budget=8.0,
        adjacency="zero-out",
        min_separation=1,
        max_participation=10,
        restart_rounds=restart_rounds,
    )


def prefix_noise(rounds: int, restart_rounds: int | None = None, size: int = SIZE) -> list[Tensor]:
    """Return the noise in the model after each round, of rounds in which everybody sent zeros."""
    mode, total, prefixes = noise_mode(settings(restart_rounds)), torch.zeros(size), []
    for number in range(1, rounds + 1):
        calibrated = CalibratedRound(round_number=number, sensitivity=0.5, keys=DerivedKeys(SECRET))
        total = total + mode.at_server(torch.zeros(size), torch.Generator(), calibrated)
        prefixes.append(total)
    return prefixes


def test_a_prefix_is_covered_by_the_subtrees_in_its_binary_digits() -> None:
    assert covering_nodes(0) == []
    assert covering_nodes(1) == [Node(0, 0)]
    assert covering_nodes(6) == [Node(2, 0), Node(1, 2)]
    assert covering_nodes(7) == [Node(2, 0), Node(1, 2), Node(0, 6)]
    assert covering_nodes(8) == [Node(3, 0)]


@pytest.mark.parametrize("leaves", range(1, 70))
def test_the_subtrees_of_a_prefix_hold_each_leaf_once(leaves: int) -> None:
    covered = [
        leaf
        for node in covering_nodes(leaves)
        for leaf in range(node.index << node.level, (node.index + 1) << node.level)
    ]

    assert covered == list(range(leaves))


def test_the_noise_of_a_model_grows_with_the_digits_of_its_round_not_with_rounds() -> None:
    for number, noise in enumerate(prefix_noise(16), start=1):
        # One draw of std 2 * 0.5 = 1 for each binary digit that is 1.
        expected = math.sqrt(number.bit_count())
        error = 5.5 * expected / math.sqrt(2 * SIZE)
        assert float(noise.std()) == pytest.approx(expected, abs=error + expected * 2.0**-10)


def test_two_prefixes_share_the_noise_of_the_subtrees_they_share() -> None:
    prefixes = prefix_noise(8)

    # 6 = 4 + 2 shares the subtree of four with 4, and 7 = 4 + 2 + 1 all of it with 6; 8 is alone.
    def shared(left: int, right: int) -> float:
        return float((prefixes[left - 1] * prefixes[right - 1]).mean())

    error = 5.5 * 3 / math.sqrt(SIZE)
    assert shared(4, 6) == pytest.approx(1, abs=error)
    assert shared(6, 7) == pytest.approx(2, abs=error)
    assert shared(7, 8) == pytest.approx(0, abs=error)


def test_a_round_that_is_closed_again_gets_the_very_same_noise() -> None:
    assert torch.equal(prefix_noise(5, size=1000)[-1], prefix_noise(5, size=1000)[-1])


def test_a_restart_keeps_what_is_in_the_model_and_begins_a_tree_of_its_own() -> None:
    prefixes = prefix_noise(6, restart_rounds=3)

    # 3 = 2 + 1 leaves two draws in the model; the new tree's first leaf adds one.
    for number, draws in ((3, 2), (4, 3), (5, 3), (6, 4)):
        expected = math.sqrt(draws)
        error = 5.5 * expected / math.sqrt(2 * SIZE)
        assert float(prefixes[number - 1].std()) == pytest.approx(
            expected, abs=error + expected * 2.0**-10
        )
    increments = [later - earlier for earlier, later in pairwise(prefixes)]
    assert not torch.equal(increments[2], prefixes[0])


def test_keys_that_do_not_repeat_are_refused() -> None:
    calibrated = CalibratedRound(round_number=1, sensitivity=0.5, keys=SystemKeys())

    with pytest.raises(ValueError, match="needs keys that repeat"):
        noise_mode(settings()).at_server(torch.zeros(10), torch.Generator(), calibrated)


def test_derived_keys_differ_by_label_and_by_secret() -> None:
    keys = {
        DerivedKeys(secret).draw(label)
        for secret in (SECRET, SECRET[::-1])
        for label in ("tree 0 level 0 node 0", "tree 0 level 0 node 1")
    }

    assert len(keys) == 4


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, got 5"):
        DerivedKeys(b"short")
