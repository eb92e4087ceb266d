"""The page of one keyboard is written as plain files, whole or not at all."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import export.page.device_site
from export.bundles.keyboard_bundle import load_bundle
from export.people.adapter import decode_adapter
from export.people.personal_file import load_personal_file
from export.runtime.word_graph import NextWordGraph
from export.serve.cli import main
from models.text.language_words import language_file
from models.vector.tensor_file import decode_tensors
from tests.export.page.conftest import Household


@pytest.fixture
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for what npm brings: three small files."""
    files = {"ort.wasm.min.mjs": b"ort", "a.wasm": b"large", "a.wasm.gz": b"small"}
    monkeypatch.setattr(export.page.device_site, "runtime_files", lambda: files)


@pytest.mark.usefixtures("_runtime")
def test_the_folder_holds_the_page_and_one_person_s_keyboard(
    tmp_path: Path, household: Household
) -> None:
    site = tmp_path / "site"
    ada = household.people / "ada.zip"

    done = main(["page", str(household.shared), "--person", str(ada), "--out", str(site)])

    assert done == 0
    described = json.loads((site / "keyboard/keyboard.json").read_bytes())
    version = described["versions"][0]
    place = site / "keyboard" / version["version"]
    assert described["client"] == "ada"
    digest = hashlib.sha256((place / "personal.safetensors").read_bytes()).hexdigest()
    assert version["personal"] == {"method": "fedtp", "available": True, "sha256": digest}
    assert version["context_size"] == 8
    assert (place / "model.onnx").read_bytes() == household.bundle.graph
    assert (place / "vocabulary.txt").read_bytes() == household.bundle.vocabulary.to_bytes()
    tensors, _ = decode_tensors((place / "personal.safetensors").read_bytes())
    shapes = NextWordGraph(household.bundle.graph).personal_shapes
    expected = decode_adapter(load_personal_file(ada).adapter, shapes, "float32")
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(tensors[name], expected[name]) for name in expected)
    assert 'DESCRIPTION = "keyboard/keyboard.json"' in (site / "page/source.js").read_text()
    assert (site / "page/onnxruntime-web-1.30.0/a.wasm").read_bytes() == b"large"


@pytest.mark.usefixtures("_runtime")
def test_the_folder_is_the_owner_s_alone(
    tmp_path: Path, bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    # No word of this list is on the shipped ones.
    monkeypatch.setattr(export.page.device_site, "blocked_words", lambda _: frozenset({"the"}))

    assert main(["page", str(bundle_folder), "--out", str(site)]) == 0

    assert site.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in site.rglob("*") if path.is_file()} == {0}
    described = json.loads((site / "keyboard/keyboard.json").read_bytes())
    assert described["client"] == "everyone"
    the = load_bundle(bundle_folder).vocabulary.words.index("the")
    version = described["versions"][0]
    assert (version["never"], version["offensive"]) == ([0, 1, the], [the])
    assert version["word_lists"] == ["page/words/en.txt"]
    assert (site / "page/words/en.txt").read_bytes() == language_file("en")
    assert (
        described["versions"][0]["files"].keys() == load_bundle(bundle_folder).manifest.files.keys()
    )


@pytest.fixture
def sources(household: Household, bundle_folder: Path) -> dict[str, str]:
    """Where bundles and people's files are."""
    people = {f"{name}.zip": str(household.people / f"{name}.zip") for name in ("ada", "absent")}
    return {"shared": str(household.shared), "whole": str(bundle_folder), **people}


@pytest.mark.usefixtures("_runtime")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("shared", "a part of this model is each person's own; give their file with --person"),
        ("whole --person ada.zip", "ada's file is of no use to it"),
        ("shared --person absent.zip", "found nothing there"),
        ("shared --person ada.zip --authority absent.crt", "absent.crt"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    tmp_path: Path,
    sources: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    asked: str,
    told: str,
) -> None:
    words = [sources.get(word, word) for word in asked.split()]

    assert main(["page", *words, "--out", str(tmp_path / "site")]) == 1

    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_onnxruntime_the_command_that_fetches_it_is_named(
    tmp_path: Path,
    bundle_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(export.page.device_site, "runtime_files", dict)

    assert main(["page", str(bundle_folder), "--out", str(tmp_path / "site")]) == 1

    assert "run `sotto-serve fetch`" in capsys.readouterr().err
