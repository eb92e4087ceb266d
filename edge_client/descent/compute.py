"""Choose where training runs, and set what is global to the process that trains.

Only a process's entry point calls ``prepare_compute``: library code changes nothing global.
"""

import torch

from models.settings.character import CharTransformerSettings
from models.settings.image import VitSettings
from models.settings.model import ModelSettings, TransformerLmSettings
from models.settings.seq2seq import Seq2SeqSettings
from models.settings.voice import TransformerTtsSettings
from privacy.foundation.memory_pool import keep_freed_memory

MEDIUM_ERROR = 1e-5
"""Largest relative error of a float32 matrix product that still counts as float32."""


class ComputeError(ValueError):
    """Raised when this machine lacks the device that was asked for."""


_ATTENTIVE = (
    TransformerLmSettings,
    VitSettings,
    CharTransformerSettings,
    Seq2SeqSettings,
    TransformerTtsSettings,
)


def prepare_compute(
    device: str = "auto", threads: int | None = None, *, model: ModelSettings | None = None
) -> torch.device:
    """Set up this process for training on ``auto``, ``cpu`` or ``cuda`` and return the device.

    On processors where oneDNN multiplies float32 matrices at full precision, it is preferred to
    MKL, which is about two times slower on AMD. A ``model`` with attention is an exception: its
    many small products cost oneDNN two to seven times as much as MKL.

    With one thread an operation, a run is repeatable to the bit; None leaves torch's choice.

    Raises:
        ComputeError: If the device is not one of these, or not there.
        ValueError: If ``threads`` is below 1.
    """
    chosen = resolve_device(device)
    keep_freed_memory()
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads must be >= 1, got {threads}")
        torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest" if isinstance(model, _ATTENTIVE) else "medium")
    if _product_error() > MEDIUM_ERROR:
        # This processor would round factors to bfloat16 (AMX does): keep what the plan asks for.
        torch.set_float32_matmul_precision("highest")
    return chosen


def resolve_device(device: str) -> torch.device:
    """Return the device of this name; ``auto`` is CUDA where there is one, else the CPU.

    Raises:
        ComputeError: If the device is not one of these, or not there.
    """
    if device not in {"auto", "cpu", "cuda"}:
        raise ComputeError(f"device must be auto, cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ComputeError("device cuda was asked for, but torch finds none; use auto or cpu")
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


def gains_from_bfloat16(device: torch.device) -> bool:
    """Tell whether the device multiplies bfloat16 matrices faster than float32 ones."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has = torch.cpu.get_capabilities()
    # Without AMX, Intel takes as long for bfloat16 products as for float32 ones, rounding aside.
    pays_alone = "Intel" not in has.get("cpu_name", "")
    return bool(has.get("amx_bf16") or (has.get("avx512_bf16") and pays_alone))


def _product_error() -> float:
    """Return the relative error of a float32 product large enough for oneDNN to take it."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    return float(((left @ right).double() - exact).norm() / exact.norm())
