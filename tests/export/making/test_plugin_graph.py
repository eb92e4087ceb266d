"""A plugin's model leaves as an ONNX file that computes what torch does, or not at all."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sotto
from export.cli import main
from export.runtime.quiet_onnxruntime import load_onnxruntime
from models.plugins.loaded import part_of
from models.plugins.parts import Part
from tests.plugin_package import EXAMPLE, EXAMPLE_PLUGIN, use_example

SPAM: dict[str, Any] = tomllib.loads((EXAMPLE / "spam.toml").read_text())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> sotto.Run:
    """Return a run of one round of the example."""
    use_example(monkeypatch, tmp_path)
    settings = {**SPAM, "rounds": {**SPAM["rounds"], "cap": 1}}
    return sotto.simulate(settings, out=tmp_path / "run")


def exported(run: sotto.Run, target: Path, *more: str) -> int:
    return main(
        ["plugin", str(run.folder), "--out", str(target), "--plugin", EXAMPLE_PLUGIN, *more]
    )


def test_the_file_computes_what_the_network_does_and_says_what_it_is_of(
    run: sotto.Run, tmp_path: Path
) -> None:
    assert exported(run, tmp_path / "spam.onnx") == 0

    counts = np.random.default_rng(1).integers(0, 3, (4, 256)).astype(np.float32)
    session = load_onnxruntime().InferenceSession(str(tmp_path / "spam.onnx"))
    (found,) = session.run(None, {"counts": counts})
    own = {name: tensor.numpy() for name, tensor in run.model().state_dict().items()}
    hidden = np.maximum(counts @ own["hidden.weight"].T + own["hidden.bias"], 0)
    scores = hidden @ own["output.weight"].T + own["output.bias"]
    expected = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    facts = {entry.key: entry.value for entry in onnx.load(tmp_path / "spam.onnx").metadata_props}
    assert facts["sotto.plugins"] == EXAMPLE_PLUGIN
    assert facts["sotto.guarantee"].startswith("none: no noise")
    assert facts["sotto.round"] == "1"


def test_a_graph_that_computes_something_else_is_not_written(
    run: sotto.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    part = type(part_of(Part.EXPORT, "word_counts"))
    build = part.build

    for broken, told in (
        (lambda graph: graph.replace(b"Relu", b"Tanh"), "differ"),
        (lambda _: b"no graph", "word_counts of sotto.export raised"),
    ):
        monkeypatch.setattr(part, "build", lambda *given, _b=broken: _b(build(*given)))
        assert exported(run, tmp_path / "spam.onnx") == 1
        assert told in capsys.readouterr().err
        assert not (tmp_path / "spam.onnx").exists()


def test_a_release_is_read_with_the_plugins_that_are_named(
    run: sotto.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--out", str(tmp_path / "spam.onnx"), "--plugin", "sotto-spam-filter==2"]

    assert main(["plugin", str(run.folder), *target]) == 1

    assert "must be of version 2, 1.0.0 is installed" in capsys.readouterr().err
