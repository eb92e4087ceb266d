from collections.abc import Iterator

import pytest
import torch

from edge_client.descent import compute
from edge_client.descent.compute import (
    ComputeError,
    gains_from_bfloat16,
    prepare_compute,
    resolve_device,
)
from models.settings.character import CharTransformerSettings
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.model import GruLmSettings, ModelSettings, TransformerLmSettings


@pytest.fixture(autouse=True)
def _restore_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_float32_products_stay_float32() -> None:
    prepare_compute("cpu", threads=1)
    left, right = torch.randn(300, 300), torch.randn(300, 300)

    exact = left.double() @ right.double()

    # float32 keeps 24 bits; a factor rounded to bfloat16 would be off by 2e-3.
    assert float(((left @ right).double() - exact).norm() / exact.norm()) < 1e-5
    assert torch.get_num_threads() == 1


def test_a_processor_that_would_round_factors_keeps_the_exact_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compute, "_product_error", lambda: 2e-3)

    prepare_compute("cpu")

    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        (None, "medium"),
        (GruLmSettings(vocabulary_size=5), "medium"),
        (ConvNetSettings(class_count=2), "medium"),
        (TransformerLmSettings(vocabulary_size=5), "highest"),
        (VitSettings(class_count=2), "highest"),
        (CharTransformerSettings(), "highest"),
    ],
)
def test_small_products_of_attention_are_left_to_mkl(
    monkeypatch: pytest.MonkeyPatch, model: ModelSettings | None, precision: str
) -> None:
    monkeypatch.setattr(compute, "_product_error", lambda: 0.0)

    prepare_compute("cpu", model=model)

    assert torch.get_float32_matmul_precision() == precision


@pytest.mark.parametrize("available", [True, False])
def test_auto_takes_cuda_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, available: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)

    assert resolve_device("auto").type == ("cuda" if available else "cpu")
    assert resolve_device("cpu").type == "cpu"


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ComputeError, match="use auto or cpu"):
        resolve_device("cuda")
    with pytest.raises(ComputeError, match="auto, cpu or cuda, got 'tpu'"):
        resolve_device("tpu")


def test_no_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="threads must be >= 1, got 0"):
        prepare_compute("cpu", threads=0)


@pytest.mark.parametrize(
    ("found", "gains"),
    [
        ({"cpu_name": "Intel Xeon", "amx_bf16": True, "avx512_bf16": True}, True),
        # Intel's products of two bfloat16 at a time come half as often as float32's.
        ({"cpu_name": "Intel Xeon", "amx_bf16": False, "avx512_bf16": True}, False),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": True}, True),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": False}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_bfloat16_is_for_processors_that_multiply_it_faster(
    found: dict[str, object], gains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)

    assert gains_from_bfloat16(torch.device("cpu")) is gains
