"""Mode ``ftrl``, mechanism ``tree``: the noise of released prefix sums comes from a binary tree.

The sum of the first t aggregates gets the noise of the complete subtrees that cover rounds 1 to t:
at most log2 t + 1 draws, however many rounds. A round's model already holds the noise of the
prefix before it, so a round adds the subtrees that begin to cover and takes out, exactly, those
that are covered by a larger one. For that a node's noise must be drawn again bit by bit: nodes
have keys derived from one secret, which the coordinator seals in its store.

A restart begins a new tree on top of the model as it is, noise and all.

References:
    Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling",
        ICML 2021, arXiv:2103.00039 (Algorithm 1 and Appendix B).
"""

import hashlib
import hmac
from dataclasses import dataclass

import torch
from torch import Tensor

from privacy.accounting.events import Adjacency
from privacy.noise.buffers import NoiseBuffers
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.mode import CalibratedRound, NoiseMode
from privacy.noise.secure_gaussian import KEY_BYTES, Draw, add_gaussian, calibrate


class DerivedKeys:
    """Keys that follow from one secret and the label: the same label, the same draw."""

    repeats = True

    def __init__(self, secret: bytes) -> None:
        """Use a secret of ``KEY_BYTES`` random bytes, which can take the noise out again."""
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a noise key must have {KEY_BYTES} bytes, got {len(secret)}")
        self._secret = secret
        # Kept from round to round; it follows from the keys alone.
        self.buffers: NoiseBuffers | None = None

    def draw(self, label: str, /) -> bytes:
        """Return HMAC-SHA256 of the label under the secret."""
        return hmac.new(self._secret, b"sotto noise 1\0" + label.encode(), hashlib.sha256).digest()


@dataclass(frozen=True, slots=True)
class Node:
    """The ``index``-th complete subtree, from 0, of its size, 2^level leaves."""

    level: int
    index: int


def covering_nodes(leaf_count: int) -> list[Node]:
    """Return the complete subtrees that cover leaves 1 to ``leaf_count``, largest first.

    They are the ones in the binary digits of the count: 6 = 4 + 2 leaves.
    """
    levels = [level for level in range(leaf_count.bit_length()) if leaf_count >> level & 1]
    return [Node(level, (leaf_count >> level) - 1) for level in reversed(levels)]


@dataclass(frozen=True)
class TreeGaussian(NoiseMode):
    """The coordinator's noise on prefix sums along a tree.

    The guarantee covers whoever reads any or all released models, not the coordinator. Neighbours
    are as for ``central``; no sampling is assumed. It rests on how often, and how far apart, one
    person takes part: the cohort's selection holds both.
    """

    settings: TreeNoise

    @property
    def adjacency(self) -> Adjacency | None:
        """Return the neighbouring relation that the sensitivity is asked for."""
        return self.settings.adjacency

    def at_server(
        self,
        aggregate: Tensor,
        generator: torch.Generator,
        calibrated: CalibratedRound | None = None,
    ) -> Tensor:
        """Add the noise of this prefix and take out that of the prefix before, in place."""
        if calibrated is None:
            raise ValueError("mode ftrl needs the round's sensitivity, got none")
        if not calibrated.keys.repeats:
            raise ValueError("mode ftrl needs keys that repeat: those of the run's tree")
        calibration = calibrate(
            noise_multiplier=self.settings.noise_multiplier,
            sensitivity=calibrated.sensitivity,
            element_count=aggregate.numel(),
        )
        return add_gaussian(aggregate, calibration, self._draws(calibrated))

    def _draws(self, calibrated: CalibratedRound) -> list[Draw]:
        tree, leaf = self.settings.place_in_tree(calibrated.round_number)
        before, now = covering_nodes(leaf - 1), covering_nodes(leaf)

        def draw(node: Node, sign: int) -> Draw:
            label = f"tree {tree} level {node.level} node {node.index}"
            return Draw(calibrated.keys.draw(label), sign)

        return [
            *(draw(node, 1) for node in now if node not in before),
            *(draw(node, -1) for node in before if node not in now),
        ]
