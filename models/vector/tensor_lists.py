"""List the tensors of common layers in state-dict order, for the schemas of model families.

A layer's weight and bias share its name as their ``layer``. No torch.
"""

from models.vector.schema import TensorSpec


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


def check_at_least(name: str, value: int, least: int) -> None:
    """Raise ``ValueError`` if a setting is below the least value."""
    if value < least:
        raise ValueError(f"{name} must be >= {least}, got {value}")


def check_dropout(dropout: float) -> None:
    """Raise ``ValueError`` if a dropout probability is not in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout}")
