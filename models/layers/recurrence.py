"""A GRU layer for processors: the framework's arithmetic, with few and large operations.

``nn.GRU`` on a CPU records some thirty small operations a token and runs each backwards. Here a
token costs six forwards and four backwards, and everything that does not depend on the token before
(the input's product, the gates' slopes, the gradients of all weights) is one operation for the
whole window. On CUDA the framework's own kernel is better, and is used.

Gates, as in ``nn.GRU`` (r, z, n in this order):

    r, z = sigmoid(W_i x + b_i + W_h h + b_h)        n = tanh(W_i x + b_i + r (W_h h + b_h))
    h' = (1 - z) n + z h
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Gru(nn.GRU):
    """A one-layer GRU, ``batch_first`` and with biases, that runs as ``run_gru`` does.

    Attributes:
        probe: For per-example gradients: see ``run_gru``. None in ordinary training.
    """

    probe: Tensor | None

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)
        self.probe = None

    def forward(  # type: ignore[override]  # the framework's also takes packed sequences
        self, values: Tensor, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return hidden states and the last one; shapes as in ``run_gru``."""
        return run_gru(self, values, state, probe=self.probe)


def run_gru(
    gru: nn.GRU, values: Tensor, state: Tensor | None, *, probe: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run a one-layer GRU over a window.

    Under autocast matrix products run in the autocast type. The state itself and the gates stay
    float32, so that rounding does not build up from token to token.

    Args:
        gru: One layer, one direction, ``batch_first``, with biases.
        values: Float32, shape ``(batch, time, input)``.
        state: Shape ``(1, batch, hidden)``, or None for zeros.
        probe: Shape ``(2, time, batch, 3 * hidden)``; its values are not read. The backward pass
            gives it the gradients by ``W_i x + b_i`` and by ``W_h h + b_h`` of every token.

    Returns:
        Hidden states after each token, float32, shape ``(batch, time, hidden)``; the last state.
    """
    if values.is_cuda and probe is None:
        hidden, state = nn.GRU.forward(gru, values, state)
        return hidden, state
    by_time = values.transpose(0, 1)  # (time, batch, input)
    input_weight, hidden_weight, input_bias, hidden_bias = gru.parameters()
    inputs = nn.functional.linear(by_time, input_weight, input_bias).float()
    first = values.new_zeros(values.shape[0], gru.hidden_size) if state is None else state[0]
    states: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]  # untyped in torch
        inputs, first, hidden_weight, hidden_bias, probe
    )
    return states.transpose(0, 1), states[-1:]


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917  # torch calls it by position
        ctx: Any,  # torch passes its own context object
        inputs: Tensor,
        first: Tensor,
        weight: Tensor,
        bias: Tensor,
        probe: Tensor | None,
    ) -> Tensor:
        """Return the states after each token, shape ``(time, batch, hidden)``.

        ``inputs`` is W_i x + b_i, shape ``(time, batch, 3 * hidden)``; ``weight`` and ``bias`` are
        W_h, ``(3 * hidden, hidden)``, and b_h; ``first`` is the state before, ``(batch, hidden)``.
        """
        time, batch, width = inputs.shape
        hidden = width // 3
        states = first.new_empty(time + 1, batch, hidden)
        states[0] = first
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else first.dtype
        products = first.new_empty(time, batch, width, dtype=dtype)
        gates = first.new_empty(time, batch, width)  # r, z, n
        weight, bias = weight.to(dtype), bias.to(dtype)
        with torch.autocast("cpu", enabled=False):
            for step in range(time):
                product, gate = products[step], gates[step]
                torch.addmm(bias, states[step].to(dtype), weight.t(), out=product)
                reset_update = gate[:, : 2 * hidden]
                torch.add(product[:, : 2 * hidden], inputs[step, :, : 2 * hidden], out=reset_update)
                reset_update.sigmoid_()
                new = gate[:, 2 * hidden :]
                reset, update = reset_update[:, :hidden], reset_update[:, hidden:]
                torch.addcmul(
                    inputs[step, :, 2 * hidden :], reset, product[:, 2 * hidden :], out=new
                )
                new.tanh_()
                torch.lerp(new, states[step], update, out=states[step + 1])
        ctx.save_for_backward(states, products, gates, weight)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients by inputs, first state, weight, bias and probe."""
        states, products, gates, weight = ctx.saved_tensors
        before = states[:-1]
        hidden = before.shape[2]
        reset, update, new = gates.split(hidden, dim=2)
        # Slopes of the three pre-activations by the state after the token.
        new_slope = (1 - update) * (1 - new * new)
        update_slope = (before - new) * update * (1 - update)
        reset_slope = new_slope * products[:, :, 2 * hidden :] * reset * (1 - reset)
        hidden_slopes = torch.stack([reset_slope, update_slope, new_slope * reset], dim=2)

        towards = gradient.new_empty(states.shape[0] - 1, states.shape[1], hidden)
        carried = torch.zeros_like(states[0])
        hidden_gradient = torch.empty_like(hidden_slopes)  # (time, batch, 3, hidden)
        for step in range(len(towards) - 1, -1, -1):
            torch.add(carried, gradient[step], out=towards[step])
            torch.mul(hidden_slopes[step], towards[step].unsqueeze(1), out=hidden_gradient[step])
            product = hidden_gradient[step].flatten(1).to(weight.dtype) @ weight
            carried = torch.addcmul(product, towards[step], update[step])
        flat = hidden_gradient.flatten(2)
        new_gradient = towards * new_slope
        inputs_gradient = torch.cat([flat[:, :, : 2 * hidden], new_gradient], dim=2)
        if ctx.needs_input_grad[4]:
            # Each example's own gradients are made of these; their sum over the batch is not.
            return inputs_gradient, carried, None, None, torch.stack([inputs_gradient, flat])
        rows = flat.flatten(0, 1)
        weight_gradient = rows.t().to(weight.dtype) @ before.flatten(0, 1).to(weight.dtype)
        return inputs_gradient, carried, weight_gradient.float(), rows.sum(0), None
