"""List the tensors of common layers in state-dict order, for the schemas of model families.

A layer's weight and bias share its name as their ``layer``. No torch.
"""

from collections.abc import Callable, Iterable

from models.vector.schema import TensorSpec

SEQUENTIAL = ("0", "2")
"""Names of a feed-forward network's layers where an activation is a module between them."""


def tensor(layer: str, entry: str, *shape: int) -> TensorSpec:
    """Return one entry of a layer, such as ``weight``."""
    return TensorSpec(name=f"{layer}.{entry}", shape=shape, layer=layer)


def norm_tensors(name: str, width: int) -> list[TensorSpec]:
    """List a layer norm over ``width`` features."""
    return [tensor(name, "weight", width), tensor(name, "bias", width)]


def batch_norm_tensors(name: str, width: int) -> list[TensorSpec]:
    """List a batch norm over ``width`` channels: what is trained, then what is counted."""
    entries = ("weight", "bias", "running_mean", "running_var")
    return [*(tensor(name, entry, width) for entry in entries), tensor(name, "batch_count", 1)]


def linear_tensors(name: str, out_size: int, in_size: int) -> list[TensorSpec]:
    """List a linear layer with a bias."""
    return [tensor(name, "weight", out_size, in_size), tensor(name, "bias", out_size)]


def attention_tensors(
    name: str, *, model_size: int, inner_size: int, out_bias: bool = True
) -> list[TensorSpec]:
    """List a self-attention: QKV as one matrix without bias, as FedTP generates it."""
    out = tensor(f"{name}.to_out", "weight", model_size, inner_size)
    bias = [tensor(f"{name}.to_out", "bias", model_size)] if out_bias else []
    return [tensor(f"{name}.to_qkv", "weight", 3 * inner_size, model_size), out, *bias]


def cross_attention_tensors(name: str, width: int, *, out_bias: bool = True) -> list[TensorSpec]:
    """List an attention to another sequence, with a matrix for queries, keys and values each."""
    bias = [tensor(f"{name}.to_out", "bias", width)] if out_bias else []
    matrices = ("to_q", "to_k", "to_v", "to_out")
    return [*(tensor(f"{name}.{matrix}", "weight", width, width) for matrix in matrices), *bias]


def feedforward_tensors(
    name: str, width: int, hidden: int, layers: tuple[str, str] = ("to_hidden", "to_out")
) -> list[TensorSpec]:
    """List a feed-forward network: a layer that widens and one that narrows."""
    first, second = layers
    return [
        *linear_tensors(f"{name}.{first}", hidden, width),
        *linear_tensors(f"{name}.{second}", width, hidden),
    ]


def stacked(
    name: str, count: int, layer: Callable[[str], Iterable[TensorSpec]]
) -> list[TensorSpec]:
    """List the tensors of a stack of layers, which are named ``NAME.0`` and so on."""
    return [spec for place in range(count) for spec in layer(f"{name}.{place}")]
