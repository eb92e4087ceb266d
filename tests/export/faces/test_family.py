import sys

import pytest

from export.faces.family import ExportError
from export.graphs.gru import GruGraph
from export.graphs.registry import exporter_for, parse_graph
from export.graphs.transformer import TransformerGraph
from export.graphs.vit import VitGraph
from models.settings.character import CharLstmSettings
from models.settings.image import VitSettings
from models.settings.model import GruLmSettings, TransformerLmSettings


def test_the_settings_find_their_exporter() -> None:
    assert isinstance(exporter_for(GruLmSettings(vocabulary_size=5)), GruGraph)
    assert isinstance(exporter_for(TransformerLmSettings(vocabulary_size=5)), TransformerGraph)
    assert isinstance(exporter_for(VitSettings(class_count=2)), VitGraph)


def test_a_family_without_an_exporter_is_refused_in_one_line() -> None:
    with pytest.raises(
        ExportError, match=r"must be gru_lm, transformer_lm or vit to be exported, got char_lstm$"
    ):
        exporter_for(CharLstmSettings())


@pytest.mark.parametrize("encoded", [b"not a graph", b"\xff" * 100, b"\x0a\xff\xff\xff\x7f"])
def test_bytes_that_are_no_graph_are_refused(encoded: bytes) -> None:
    with pytest.raises(ExportError, match="must be ONNX"):
        parse_graph(encoded)


def test_missing_packages_are_named_with_the_extra_that_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "export.graphs.gru", raising=False)

    with pytest.raises(ExportError, match=r"onnx is missing; install sotto\[export\]"):
        exporter_for(GruLmSettings(vocabulary_size=5))
    with pytest.raises(ExportError, match=r"onnx is missing; install sotto\[export\]"):
        parse_graph(b"")
