"""Sum the gradients of a batch of examples, each clipped by its own norm.

The loss of an example is the mean cross-entropy over its own tokens. Its gradient depends on that
example and the parameters alone, so adding or removing an example moves the sum by at most the
clipping norm.

Rounding. A norm is clipped by an upper bound of it: products of float32 can cancel, so the squared
norm gets ``ROUNDING`` times the square of the sum of its terms' sizes on top. The noise is not
scaled to the rounding of the sum over the batch itself, some 1e-6 of it.

Range. The writer of the model can make a norm that leaves float32 for one word's readers: infinity
is no norm to clip by, and a square below 1e-38 is lost from one. An example that meets a value
above ``LARGEST_VALUE``, or has no finite norm, counts as zero. That depends on this example alone,
so the bound above holds, and the sum stays finite whatever the model is.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.example_level.parameter_uses import LookupUse, OutputUse, ParameterUse, Sums
from models.example_level.recording import check_recordable, recording
from models.networks.registry import WordNetwork
from models.tasks.text_streams import PADDING, Window

ROUNDING = 2.0**-16
"""Largest error of an inner product in float32, over the product of the norms.

Rounding errors grow with the square root of a product's length times 2^-24 (Higham and Mary, "A new
approach to probabilistic rounding error analysis", 2019): this covers 65,000 words.
"""


LARGEST_VALUE = 2.0**20
"""Largest activation or gradient of an example that counts, far above any in training.

Up to it no norm overflows, and what squares below 1e-38 lose moves a norm by less than 1e-10.
"""


class ExampleGradients:
    """The gradients of one network's examples, clipped and summed."""

    def __init__(self, network: WordNetwork) -> None:
        """Take a network; refuse a layer whose gradients of each example are not known."""
        check_recordable(network)
        self._network = network
        tied = network.output.weight is None
        self._output_weight = "embedding.weight" if tied else "output.weight"

    def add_clipped(self, window: Window, clipping_norm: float, sums: Sums) -> Tensor:
        """Add every example's gradient, shortened to the clipping norm over all parameters.

        ``window`` holds one example a row, from a fresh state, on the CPU; ``sums`` changes in
        place. Returns the loss of each example in nats, shape ``(batch,)``. An example beyond
        ``LARGEST_VALUE`` adds nothing.
        """
        losses, uses = self.record(window)
        norms = norm_bounds(uses)
        left_out = ~(norms.isfinite() & _in_range(uses))
        if left_out.any():
            # Not by a factor of 0, which makes NaN of what is infinite.
            uses = [use.without(left_out) for use in uses]
            norms = norms.masked_fill(left_out, clipping_norm)
        for use in uses:
            use.add_weighted((clipping_norm / norms).clamp(max=1), sums)
        return losses

    def record(self, window: Window) -> tuple[Tensor, Sequence[ParameterUse]]:
        """Run both passes; return each example's loss, ``(batch,)``, and all uses of parameters."""
        network = self._network
        device = network.output_bias.device
        with recording(network, *window.inputs.shape) as uses:
            features, _ = network.features(window.inputs.to(device), None)
            with torch.no_grad():
                losses, output = self._output(features, window.targets.to(device))
                gradient = output.features_gradient(network.output_weight)
            features.backward(gradient)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return losses, [*uses, output]

    def _output(self, features: Tensor, targets: Tensor) -> tuple[Tensor, OutputUse]:
        """Return the losses, and how the output layer was used."""
        weight, bias = self._network.output_weight, self._network.output_bias
        rows = features.flatten(0, 1)
        logits = torch.addmm(bias, rows, weight.t())
        right = targets.flatten().clamp(min=0).unsqueeze(1)
        largest, own = logits.amax(1), logits.gather(1, right).squeeze(1)
        differences = torch.softmax(logits, 1)
        # As in models.cross_entropy: the log-sum-exp without another pass over the logits.
        nats = (largest - differences.amax(1).log() - own).view(targets.shape)
        differences.scatter_add_(1, right, -torch.ones_like(right, dtype=logits.dtype))
        used = (targets != PADDING).float()
        scales = used / used.sum(1, keepdim=True)
        use = OutputUse(
            self._output_weight,
            "output.bias",
            features.detach(),
            differences.view(*targets.shape, -1),
            scales,
        )
        return (nats * scales).sum(1), use


def _in_range(uses: Sequence[ParameterUse]) -> Tensor:
    """Return whether each example met no value above ``LARGEST_VALUE``, nor NaN, ``(batch,)``."""
    return torch.stack([use.largest() for use in uses]).amax(0) <= LARGEST_VALUE


def norm_bounds(uses: Sequence[ParameterUse]) -> Tensor:
    """Return an upper bound of each example's gradient norm over all parameters, ``(batch,)``.

    It is above the norm by about 1e-4 of it where terms do not cancel.
    """
    squares, sizes = uses[0].squared_norms(), uses[0].sizes().square()
    for use in uses[1:]:
        squares, sizes = squares + use.squared_norms(), sizes + use.sizes().square()
    for output in uses:
        for lookup in uses:
            # A tied matrix is used twice, and its gradient is the sum of both.
            if (
                isinstance(output, OutputUse)
                and isinstance(lookup, LookupUse)
                and output.weight == lookup.weight
            ):
                squares = squares + 2 * output.products_with(lookup)
                sizes = sizes + 2 * output.sizes() * lookup.sizes()
    return (squares.clamp(min=0) + ROUNDING * sizes).sqrt()
