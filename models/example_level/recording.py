"""Record, in one forward and backward pass, what every example's gradient is made of.

Only the layers listed here are accepted, by exact type. A layer that mixes examples (a batch norm),
puts time before the batch (Opacus' own attention with ``batch_first``), or uses a parameter without
a batch dimension (a table of positions added to all) would give plausible but wrong gradients.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from models.example_level.parameter_uses import AffineUse, LookupUse, ParameterUse, ScaleUse
from models.layers.attention import SelfAttention
from models.layers.dropout import Dropout
from models.layers.output import OutputLayer
from models.layers.recurrence import Gru
from models.layers.transformer import PreNormBlock
from models.networks.gru_lm import GruLm
from models.networks.transformer_lm import TransformerLm

# Modules that only pass on what is theirs: their parameters belong to the layers inside them.
_PASSING = (
    *(GruLm, TransformerLm, PreNormBlock, SelfAttention),
    *(Dropout, nn.GELU, nn.ModuleList, nn.Sequential),
)


def check_recordable(network: nn.Module) -> None:
    """Raise ``ValueError`` unless every example's gradient of a network can be known."""
    for name, module in network.named_modules():
        _check_module(name or "the network", module)
    holders = Counter(id(held) for _, held in network.named_parameters(remove_duplicate=False))
    for name, parameter in network.named_parameters():
        if holders[id(parameter)] > 1:
            raise ValueError(f"example_privacy: {name} must belong to one layer, others share it")
        if not parameter.requires_grad:
            raise ValueError(
                f"example_privacy: every parameter must be trained, {name} is frozen; freeze "
                "nothing, or leave example_privacy out"
            )


@contextmanager
def recording(network: nn.Module, batch: int, time: int) -> Iterator[list[ParameterUse]]:
    """Collect the uses of all parameters but the output layer's, in one pass over a batch.

    The list is complete after the backward pass. The parameters themselves get no gradient.
    ``time`` counts tokens with padding; ``check_recordable`` must have accepted the network.

    Raises:
        ValueError: From the pass, if a layer is given anything but one row for each token of each
            example, or runs twice.
    """
    recorder = _Recorder(batch, time)
    with ExitStack() as undo:
        for name, module in network.named_modules():
            for handle in recorder.watch(name, module):
                undo.callback(handle.remove)
        network.requires_grad_(False)
        undo.callback(network.requires_grad_)
        yield recorder.uses


class _Recorder:
    def __init__(self, batch: int, time: int) -> None:
        self.uses: list[ParameterUse] = []
        self._shape = (batch, time)
        self._seen: set[str] = set()

    def watch(self, name: str, module: nn.Module) -> list[RemovableHandle]:
        """Listen to a layer; leave modules without parameters of their own alone."""
        match module:
            case nn.Linear():
                return [module.register_forward_hook(self._affine(name, module))]
            case nn.Embedding():
                return [module.register_forward_hook(self._lookup(name))]
            case nn.LayerNorm():
                return [module.register_forward_hook(self._scale(name, module))]
            case Gru():
                before, after = self._gru(name, module)
                return [
                    module.register_forward_pre_hook(before),
                    module.register_forward_hook(after),
                ]
            case _:
                return []

    def _affine(self, name: str, layer: nn.Linear) -> Callable[..., None]:
        bias = None if layer.bias is None else f"{name}.bias"

        def forward(module: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
            inputs = self._rows(name, given[0], 3)

            def backward(gradient: Tensor) -> None:
                self.uses.append(AffineUse(f"{name}.weight", bias, inputs, gradient))

            _when_returned(output, backward)

        return forward

    def _lookup(self, name: str) -> Callable[..., Tensor]:
        def forward(module: nn.Module, given: tuple[Tensor], output: Tensor) -> Tensor:
            rows = self._rows(name, given[0], 2)
            # The first thing in the network that a gradient comes back to.
            values = output.detach().requires_grad_()

            def backward(gradient: Tensor) -> None:
                self.uses.append(LookupUse(f"{name}.weight", rows, gradient))

            _when_returned(values, backward)
            return values

        return forward

    def _scale(self, name: str, layer: nn.LayerNorm) -> Callable[..., None]:
        def forward(module: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
            values = self._rows(name, given[0], 3)
            inputs = functional.layer_norm(values, layer.normalized_shape, eps=layer.eps)

            def backward(gradient: Tensor) -> None:
                use = ScaleUse(f"{name}.weight", f"{name}.bias", inputs, gradient)
                self.uses.append(use)

            _when_returned(output, backward)

        return forward

    def _gru(self, name: str, layer: Gru) -> tuple[Callable[..., None], Callable[..., None]]:
        probes: list[Tensor] = []

        def before(module: nn.Module, given: tuple[Tensor, Tensor | None]) -> None:
            batch, time = self._shape
            probe = given[0].new_zeros(2, time, batch, 3 * layer.hidden_size)
            layer.probe = probe.requires_grad_()
            probes.append(probe)

        def after(
            module: nn.Module, given: tuple[Tensor, Tensor | None], output: tuple[Tensor, Tensor]
        ) -> None:
            layer.probe = None
            values = self._rows(name, given[0], 3)
            if given[1] is not None:
                raise ValueError(f"example_privacy: {name} must start from a fresh state")
            states = output[0].detach()
            earlier = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)

            def backward(gradient: Tensor) -> None:
                by_input, by_state = gradient.transpose(1, 2)  # each (batch, time, 3 * hidden)
                self.uses.append(
                    AffineUse(f"{name}.weight_ih_l0", f"{name}.bias_ih_l0", values, by_input)
                )
                self.uses.append(
                    AffineUse(f"{name}.weight_hh_l0", f"{name}.bias_hh_l0", earlier, by_state)
                )

            _when_returned(probes.pop(), backward)

        return before, after

    def _rows(self, name: str, rows: Tensor, ndim: int) -> Tensor:
        """Return a layer's input after checking that it is batch first and the layer's only one."""
        if rows.ndim != ndim or tuple(rows.shape[:2]) != self._shape:
            raise ValueError(
                f"example_privacy: {name} must be given {self._shape[0]} examples of "
                f"{self._shape[1]} tokens, got shape {tuple(rows.shape)}; a table of positions "
                "needs a batch dimension too"
            )
        if name in self._seen:
            raise ValueError(f"example_privacy: {name} must run once in a pass, it ran twice")
        self._seen.add(name)
        return rows.detach()


def _when_returned(output: Tensor, use: Callable[[Tensor], None]) -> None:
    """Call ``use`` with the gradient by an output, once the backward pass has reached it."""
    output.register_hook(use)  # type: ignore[no-untyped-call]  # torch leaves it untyped


_LAYERS = (nn.Linear, nn.Embedding, nn.LayerNorm, Gru)


def _check_module(name: str, module: nn.Module) -> None:
    kind, known = type(module), ", ".join(layer.__name__ for layer in _LAYERS)
    if kind not in (*_PASSING, *_LAYERS, OutputLayer):
        raise ValueError(
            f"example_privacy: {name} is a {kind.__module__}.{kind.__name__}, whose gradient for "
            f"each example is not known to be right; use {known}"
        )
    if kind in _PASSING:
        for own, _ in module.named_parameters(recurse=False):
            raise ValueError(
                f"example_privacy: {name} has the parameter {own} outside any layer, so nothing "
                f"tells the examples apart; put it into one of {known}"
            )
    if isinstance(module, nn.Embedding) and not _is_plain(module):
        raise ValueError(f"example_privacy: {name} must be an embedding without options")
    if isinstance(module, nn.LayerNorm) and (module.weight is None or module.bias is None):
        raise ValueError(f"example_privacy: {name} must have a weight and a bias")


def _is_plain(embedding: nn.Embedding) -> bool:
    options = (embedding.padding_idx, embedding.max_norm)
    return options == (None, None) and not (embedding.scale_grad_by_freq or embedding.sparse)
