"""The model computes the same in the page, on WebAssembly, as it does natively."""

import base64
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundle import Bundle, load_bundle
from export.graph_writer import EXACT, at_accuracy
from export.named_weights import parse_graph
from export.keyboard import export_keyboard
from export.next_word import NextWords
from export.page.described import describe, personal_file
from export.page.onnxruntime_web import FOLDER, runtime_files
from export.person import export_people
from export.personal_file import load_personal_file
from export.personal_ranking import PersonalRanking
from export.release import read_release
from export.runtime import NextWordGraph
from export.strip import Keyboard
from export.word_index import WordIndex
from models.tensor_file import encode_tensors
from models.vocabulary import Vocabulary
from tests.export.page.node import ask_page
from tests.export.people import release_with_people

TEXTS = (
    "",
    "I",
    "I s",
    "I see",
    "I see ",
    "I see the sea. ",
    "I see the sea. W",
    "we can't",
    "12",
    "GO THE",
    "you don't see the café and the sea and then you see them going ",
    "you don't see the café and the sea and then you see them going s",
)


@dataclass(frozen=True)
class Person:
    """Hold a bundle on disk, loaded, and the graph of one person."""

    source: Path
    bundle: Bundle
    graph: NextWordGraph


@pytest.fixture(scope="module", params=["gru", "gru-int8", "ada", "ben"])
def person(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    vocabulary: Vocabulary,
    release_folder: Path,
) -> Person:
    folder = tmp_path_factory.mktemp("page-model")
    source = folder / "bundle"
    if request.param.startswith("gru"):
        precision = "int8" if request.param.endswith("int8") else "float32"
        export_keyboard(read_release(release_folder), source, precision=precision, languages=["en"])
        bundle = load_bundle(source)
        return Person(source, bundle, NextWordGraph(bundle.graph))
    release = release_with_people(folder / "run", vocabulary)
    export_keyboard(release, source)
    export_people(release, [(request.param, folder / "own.zip")])
    bundle = load_bundle(source)
    own = load_personal_file(folder / "own.zip")
    return Person(source, bundle, own.on(NextWordGraph(bundle.graph), bundle.manifest))


def test_every_probability_and_every_strip_is_the_native_one(
    person: Person, tmp_path: Path
) -> None:
    bundle = person.bundle
    blocked = ["the"]
    native = Keyboard(
        person.graph, bundle.vocabulary, languages=bundle.manifest.languages, blocked=blocked
    )
    exact = NextWordGraph(at_accuracy(parse_graph(bundle.graph), EXACT).SerializeToString())
    reader = NextWords(exact, bundle.vocabulary)

    found = _typed_in_page(person, tmp_path, blocked)

    for text, one in zip(TEXTS, found, strict=True):
        reading = reader.read(text)
        assert (reading is None) == (one["expected"] is None)
        if reading is not None:
            print("DIFF", np.abs(np.array(one["expected"])-reading.distribution).max(), bundle.manifest.parity)
        strip = native.suggest(text)
        for name, slot in vars(strip).items():
            assert one["strip"][name] == (None if slot is None else vars(slot)), (text, name)


def _typed_in_page(person: Person, tmp_path: Path, blocked: list[str]) -> list[dict[str, Any]]:
    if not runtime_files():
        pytest.skip("onnxruntime-web is missing: run `make page` to compare the page's values")
    bundle = person.bundle
    index = WordIndex(bundle.vocabulary)
    is_personal = bool(person.graph.personal_inputs)
    described = describe(
        "1",
        bundle.manifest,
        graph=person.graph,
        ranking=PersonalRanking(bundle.vocabulary, index, blocked=blocked),
        has_own_part=is_personal,
    )
    own = tmp_path / "own"
    own.write_bytes(personal_file(person.graph))
    asked = {
        "runtime": str(FOLDER),
        "model": str(person.source / "model.onnx"),
        "list": bundle.vocabulary.words,
        "personal": str(own) if is_personal else None,
        "contextSize": described["context_size"],
        "languages": described["languages"],
        "never": described["never"],
        "texts": TEXTS,
    }
    found: list[dict[str, Any]] = ask_page(keyboard=asked)["keyboard"]
    return found


def test_begun_words_are_ranked_as_by_the_library(vocabulary: Vocabulary) -> None:
    scores = np.random.default_rng(3).standard_normal(len(vocabulary)).astype(np.float32)
    index = WordIndex(vocabulary)
    cases = [(begun, count) for begun in ("", "s", "se", "see", "z", "can'") for count in (1, 3, 9)]

    found = ask_page(
        begun={
            "list": vocabulary.words,
            "cases": [(begun, scores.tolist(), count) for begun, count in cases],
        }
    )["begun"]

    expected = [index.likeliest(begun, scores, count=count).tolist() for begun, count in cases]
    assert found == expected


def test_tensors_arrive_as_they_were_and_damaged_ones_not_at_all() -> None:
    tensors = {
        "personal.a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "personal.b": np.array([], dtype=np.float32).reshape(0, 4),
    }
    good = bytes(encode_tensors(tensors))
    infinite = good[:-4] + struct.pack("<f", float("inf"))
    other = bytes(encode_tensors({"a": np.array([1], dtype=np.int64)}))
    damaged = (good[:-1], good + b"\0", good[:5], b"", b"\xff" * 40, infinite, other)
    files = [base64.b64encode(one).decode() for one in (good, *damaged)]

    found, *refused = ask_page(tensors={"files": files})["tensors"]

    assert found == {
        "personal.a": {"shape": [2, 3], "values": [0, 1, 2, 3, 4, 5]},
        "personal.b": {"shape": [0, 4], "values": []},
    }
    assert all(isinstance(one, str) and "must" in one for one in refused), refused
