"""The model computes the same in the page, on WebAssembly, as it does natively."""

import base64
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.graphs.registry import parse_graph
from export.graphs.writer import EXACT, at_accuracy
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.page.described import PERSONAL_FILE, describe, personal_file
from export.page.onnxruntime_web import FOLDER, runtime_files
from export.page.page_files import word_lists
from export.people.personal_file import load_personal_file
from export.releases.release import read_release
from export.runtime.next_word import NextWords
from export.runtime.personal_ranking import PersonalRanking
from export.runtime.strip import Keyboard
from export.runtime.word_graph import NextWordGraph
from export.runtime.word_index import WordIndex
from models.text.language_words import language_file
from models.text.vocabulary import Vocabulary
from models.vector.tensor_file import encode_tensors
from tests.export.page.node import ask_page
from tests.export.people_scene import release_with_people

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
    "seethe",
    "you don",
    "we dont",
    "we can see teh",
    "I cna",
    "Seeig",
    "we SEEIG",
    "GO THE",
    "you don't see the café and the sea and then you see them going ",
    "you don't see the café and the sea and then you see them going s",
)


BLOCKED = ("the",)

# One worker: what they need is costly to make.
pytestmark = pytest.mark.xdist_group("page")


@dataclass(frozen=True)
class Person:
    """Hold one person's graph beside what their page computed for each text."""

    bundle: Bundle
    graph: NextWordGraph
    in_page: list[dict[str, Any]]


@pytest.fixture(scope="module")
def people(
    tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary, release_folder: Path
) -> dict[str, Person]:
    """A GRU, the same in 8 bits, and a Transformer with each of two people's attention."""
    if not runtime_files():
        pytest.skip("onnxruntime-web is missing: run `make page` to compare the page's values")
    folder = tmp_path_factory.mktemp("page-model")
    release = release_with_people(folder / "run", vocabulary)
    export_bundle(KeyboardKind(), release, folder / "shared")
    export_people(release, [(name, folder / name) for name in ("ada", "ben")])
    whole = read_release(release_folder)
    export_bundle(KeyboardKind(["en"]), whole, folder / "float32")
    export_bundle(KeyboardKind(["en"]), whole, folder / "int8", precision="int8")
    sources = {"float32": "float32", "int8": "int8", "ada": "shared", "ben": "shared"}
    bundles = {name: load_bundle(folder / source) for name, source in sources.items()}
    graphs = {name: _graph(bundle, folder / name) for name, bundle in bundles.items()}
    asked = [
        _asked(bundle, graphs[name], folder / sources[name], folder / f"{name}.own")
        for name, bundle in bundles.items()
    ]
    found = ask_page(keyboard={"runtime": str(FOLDER), "keyboards": asked})["keyboard"]
    return {
        name: Person(bundles[name], graphs[name], in_page)
        for name, in_page in zip(sources, found, strict=True)
    }


def _graph(bundle: Bundle, own: Path) -> NextWordGraph:
    # On WebAssembly a rounded graph reckons with activations that are not rounded.
    exact = at_accuracy(parse_graph(bundle.graph), EXACT).SerializeToString()
    graph = NextWordGraph(exact)
    if bundle.manifest.personal is None:
        return graph
    return load_personal_file(own).on(graph, bundle.manifest)


def _asked(bundle: Bundle, graph: NextWordGraph, source: Path, own: Path) -> dict[str, object]:
    """Return what the page is told of a keyboard, and ask for every text."""
    ranking = PersonalRanking(bundle.vocabulary, WordIndex(bundle.vocabulary), blocked=BLOCKED)
    languages = bundle.manifest.languages
    own.write_bytes(personal_file(graph))
    described = describe(
        "1",
        bundle.manifest,
        graph=graph,
        ranking=ranking,
        open_ranking=ranking,
        own_part=own.read_bytes(),
    )
    return {
        "model": str(source / "model.onnx"),
        "list": bundle.vocabulary.words,
        "personal": str(own) if graph.personal_inputs else None,
        "contextSize": described["context_size"],
        "languages": languages,
        "never": described["never"],
        "blocked": described["blocked"],
        "files": [language_file("en").decode() for _ in word_lists(languages)],
        "texts": TEXTS,
    }


@pytest.mark.parametrize("name", ["float32", "int8", "ada", "ben"])
def test_every_probability_is_the_native_one(people: dict[str, Person], name: str) -> None:
    person = people[name]
    words = NextWords(person.graph, person.bundle.vocabulary)

    for text, found in zip(TEXTS, person.in_page, strict=True):
        reading = words.read(text)
        if reading is None:
            assert found["distribution"] is None
        else:
            np.testing.assert_allclose(found["distribution"], reading.distribution, atol=1e-4)


@pytest.mark.parametrize("name", ["float32", "int8", "ada", "ben"])
def test_every_strip_is_the_native_one(people: dict[str, Person], name: str) -> None:
    person = people[name]
    bundle = person.bundle
    languages = bundle.manifest.languages
    native = Keyboard(person.graph, bundle.vocabulary, languages=languages, blocked=BLOCKED)

    for text, found in zip(TEXTS, person.in_page, strict=True):
        expected = vars(native.suggest(text))
        shown = {place: slot and vars(slot) for place, slot in expected.items()}
        assert found["strip"] == shown, text


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


def test_offensive_words_come_only_while_the_person_allows_them() -> None:
    words = ["<unk>", "<eos>", "worst", "mild", "fine"]
    rules = {"never": [0, 1, 2, 3], "offensive": [2]}

    found = ask_page(offensive={"list": words, "scores": [9, 9, 3, 2, 1], **rules})["offensive"]

    # "mild" is blocked whoever asks.
    assert found == ["fine", "worst", "fine"]


def test_every_file_is_held_against_its_digest_the_person_s_own_too() -> None:
    digests = {name: {"sha256": hashlib.sha256(name.encode()).hexdigest()} for name in ("a", "b")}
    own = {"sha256": hashlib.sha256(b"own").hexdigest()}
    version = {"version": "1", "files": digests, "personal": own}
    shared = {"version": "1", "files": digests, "personal": None}
    unsaid = version | {"personal": {"method": "fedtp"}}
    as_described = {"a": "a", "b": "b", PERSONAL_FILE: "own"}
    cases = [
        (version, as_described),
        (shared, as_described),
        (version, as_described | {"b": "c"}),
        (version, as_described | {PERSONAL_FILE: "another's"}),
        (unsaid, as_described),
    ]

    found = ask_page(checked={"cases": [{"version": one, "served": two} for one, two in cases]})

    wrong = "{} is not what its description says: damaged, or another by now? "
    wrong += "Fetch the keyboard again."
    refused = [wrong.format(name) for name in ("b", PERSONAL_FILE, PERSONAL_FILE)]
    assert found["checked"] == [["a", "b", PERSONAL_FILE], ["a", "b"], *refused]


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
