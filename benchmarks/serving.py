"""Measure keyboards and voices as they are served: 8 bits beside float32, many people on one graph.

Figures (``--json`` prints them as one object; times are medians, ``_p99`` beside them):

    step_int8_ms, step_fp32_ms
                     One word read and every word ranked, state carried, by both bundles.
    plain_ms, plain_int8_ms
                     The same by a bare onnxruntime call, its feeds ready, on either graph.
    torch_ms         The same by torch, eagerly, in inference mode.
    int8_versus_torch, fp32_versus_torch, fp32_versus_plain, int8_versus_plain
                     torch_ms over either step; either step over its plain one: what the runtime
                     adds.
    suggestion_ms    From a text typed key by key to three suggestions, int8.
    small_int8_mb, small_fp32_mb
                     ``model.onnx`` of the tied GRU of width 300 with 10,000 words; 1 MB = 10^6.
    rss_mb           Resident memory of a process that has loaded the int8 bundle and suggests.
    recall_fp32, recall_int8, recall_loss_points
                     Share of the words of a real text that stood among three suggestions before
                     their first letter, in percent; and what 8 bits lose of it, in points.
    savings_fp32, savings_int8
                     Keys saved on that text by taking a suggestion as soon as it is right, in
                     percent; a word costs its letters and a space (`models.tasks.keystrokes`).
    personal_model_kb
                     One person's file at rest in 8 bits: FedTP's attention of the preset
                     ``fedtp-keyboard``. 1 kB = 1,000 bytes.
    personal_export_ms
                     One more person's file written and flushed, unsigned.
    cold_miss_ms     A person's file read, checked and put on the graph, to the first step.
    person_rss_kb    Resident memory that each person on the graph adds to a process that serves,
                     over all of them.

    rtf_paper_size, rtf_small
                     Seconds to say a second of sound, text to samples, by the voice of 8 bits with
                     the neural vocoder, at the paper's size (27.7 M parameters) and at that of the
                     preset ``speech-espeak`` (1.4 M); with ``_fp32`` the same in float32, with
                     ``_torch`` by torch in inference mode.
    paper_size_versus_torch, small_versus_torch, vocoder_versus_torch
                     What torch takes over what the exported graphs take.
    first_audio_ms, first_audio_fp32_ms
                     From the text to the first stretch of sound, at the paper's size.
    vocoder_rtf, griffin_lim_rtf
                     Seconds that make a second of sound of its spectrogram: the neural vocoder of
                     2.4 M parameters, and 60 iterations of Griffin-Lim in numpy.

One thread on each side; the sides take turns, a hundred steps each, or one sentence each, of which
there are few: their ``_p99`` is next to the slowest. ``--only`` leaves the rest out. Voices are
untrained (`benchmarks.parts.speaking`), which changes no sizes and no time of a second of sound.
The GRU is that of `benchmarks.export`, trained for one client's round on the manual inside CPython,
and the text is the manual's test split; ``--source`` takes a trained model, ``--dataset`` with
``--data`` takes other text.
The people's attention is made by a hypernetwork that nobody trained: sizes and times are the same.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from benchmarks.comparators.torch_step import TorchStep
from benchmarks.export import (
    BLOCK_STEPS,
    MB,
    RANKED,
    WARM_STEPS,
    make_release,
    measure_typing,
    percentiles_ms,
    rest_rss_mb,
    test_sentences,
)
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.speaking import measure_speech
from edge_client.datasets.registry import load_dataset
from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.bundles.manifest import MODEL_FILE
from export.faces.words import DISTRIBUTION, LOG_PROBABILITIES, NEXT, TOKENS, TOP_K, WORDS
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle, quantise_bundle
from export.people.personal_file import load_personal_file
from export.releases.release import Release, find_release, read_release
from export.runtime.next_word import SLOTS
from export.runtime.word_graph import NextWordGraph
from export.runtime.word_index import WordIndex
from models.networks.flat_parameters import initial_parameters
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, VocabularySettings, download_schema, plan_schema, released_schema
from models.plan.release_record import ReleaseRecord
from models.settings.model import GruLmSettings, schema_of
from models.settings.personalisation import FedTpSettings
from models.text.vocabulary import EOS, NEVER_SUGGESTED, Vocabulary, shipped_vocabulary
from models.vector.codec import named_tensors
from models.vector.tensor_file import encode_tensors
from server.personalisation.hypernetwork import HypernetworkHalf
from server.personalisation.registry import build_server_half
from simulation.config.simulation import config_from, read_tables

KB = 1e3
PEOPLE_PROCESS = """
import sys
from pathlib import Path
import psutil
from export.bundles.keyboard_bundle import load_bundle
from export.people.personal_file import load_personal_file
from export.runtime.word_graph import NextWordGraph
folder, count = Path(sys.argv[1]), int(sys.argv[2])
bundle = load_bundle(folder / "shared.zip")
graph = NextWordGraph(bundle.graph)
people = [load_personal_file(folder / "0.zip").on(graph, bundle.manifest)]
before = psutil.Process().memory_info().rss
for number in range(count):
    people.append(load_personal_file(folder / f"{number}.zip").on(graph, bundle.manifest))
print(psutil.Process().memory_info().rss - before)
"""
PRESET = "fedtp-keyboard"
Sentences = Sequence[Sequence[str]]


def measure_steps(release: Release, bundles: dict[str, Bundle], steps: int) -> dict[str, float]:
    """Read a real text word by word on every side, a block of words at a time."""
    tensors = named_tensors(schema_of(release.plan.model), np.array(release.parameters))
    sides: dict[str, Callable[[NDArray[np.int64]], object]] = {
        "step_int8": _Carried(NextWordGraph(bundles["int8"].graph)),
        "step_fp32": _Carried(NextWordGraph(bundles["fp32"].graph)),
        "plain": _Plain(bundles["fp32"].graph),
        "plain_int8": _Plain(bundles["int8"].graph),
        "torch": _Torch({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}),
    }
    stream = release.vocabulary.token_stream(test_sentences()) if release.vocabulary else []
    read = np.array(stream)[: steps + WARM_STEPS, np.newaxis, np.newaxis]
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for start in range(0, len(read), BLOCK_STEPS):
        for name, step in sides.items():
            for tokens in read[start : start + BLOCK_STEPS]:
                started = time.perf_counter()
                step(tokens)
                seconds[name].append(time.perf_counter() - started)
    figures: dict[str, float] = {"steps": len(read) - WARM_STEPS}
    for name, taken in seconds.items():
        figures[f"{name}_ms"], figures[f"{name}_ms_p99"] = percentiles_ms(taken)
    figures["int8_versus_torch"] = figures["torch_ms"] / figures["step_int8_ms"]
    figures["fp32_versus_torch"] = figures["torch_ms"] / figures["step_fp32_ms"]
    figures["fp32_versus_plain"] = figures["step_fp32_ms"] / figures["plain_ms"]
    figures["int8_versus_plain"] = figures["step_int8_ms"] / figures["plain_int8_ms"]
    return figures


class _Carried:
    """Step a graph as a keyboard does."""

    def __init__(self, graph: NextWordGraph) -> None:
        self._graph = graph
        self._state = graph.fresh_state()

    def __call__(self, tokens: NDArray[np.int64]) -> None:
        self._state = self._graph.step(tokens, self._state, k=RANKED).state


class _Plain:
    """Call onnxruntime with feeds that need no checks."""

    def __init__(self, graph: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(graph, options)
        (self._name,) = {item.name for item in self._session.get_inputs()} - {TOKENS, TOP_K}
        self._state = NextWordGraph(graph).fresh_state()[self._name]
        self._k = np.array([RANKED])
        self._outputs = [WORDS, LOG_PROBABILITIES, DISTRIBUTION, NEXT + self._name]

    def __call__(self, tokens: NDArray[np.int64]) -> None:
        feeds = {TOKENS: tokens, TOP_K: self._k, self._name: self._state}
        self._state = self._session.run(self._outputs, feeds)[3]


class _Torch:
    """Step the bare modules."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._step = TorchStep(tensors)
        self._state: torch.Tensor | None = None

    def __call__(self, tokens: NDArray[np.int64]) -> None:
        *_, self._state = self._step(torch.from_numpy(tokens), self._state, RANKED)


def _typing(bundle: Bundle, keys: int) -> dict[str, float]:
    figures = measure_typing(bundle, keys)
    return {
        "keys": figures["keys"],
        "suggestion_ms": figures["suggestion_p50_ms"],
        "suggestion_ms_p99": figures["suggestion_p99_ms"],
    }


def measure_words(bundles: dict[str, Bundle], sentences: Sentences, words: int) -> dict[str, float]:
    """Type a text with both bundles, and count what they suggest and save."""
    figures: dict[str, float] = {}
    for name, bundle in bundles.items():
        typed = _typed(bundle, sentences, words)
        figures["words"] = typed.words
        figures[f"recall_{name}"] = 100 * typed.hits / typed.words
        figures[f"savings_{name}"] = 100 * (1 - typed.keys_with / typed.keys_without)
    figures["recall_loss_points"] = figures["recall_fp32"] - figures["recall_int8"]
    return figures


class _Typed(msgspec.Struct):
    words: int = 0
    hits: int = 0
    keys_with: int = 0
    keys_without: int = 0


def _typed(bundle: Bundle, sentences: Sentences, words: int) -> _Typed:
    graph, index = NextWordGraph(bundle.graph), WordIndex(bundle.vocabulary)
    typed, state = _Typed(), graph.fresh_state()
    for sentence in sentences:
        # Of a model with a limited context each sentence is a text of its own.
        state = state if graph.context_size is None else graph.fresh_state()
        for before, word in zip([EOS, *bundle.vocabulary.encode(sentence)], sentence, strict=False):
            if typed.words == words:
                return typed
            found = graph.step(np.array([[before]]), state, k=SLOTS + len(NEVER_SUGGESTED))
            state = found.state
            _count(typed, word, bundle.vocabulary, index, found.distribution[0])
    return typed


def _count(
    typed: _Typed,
    word: str,
    vocabulary: Vocabulary,
    index: WordIndex,
    scores: NDArray[np.float32],
) -> None:
    """Count one word: it is picked as soon as it is among the best that begin as it does."""
    (row,) = vocabulary.encode([word])
    shown = (
        letters
        for letters in range(len(word))
        if row in index.likeliest(word[:letters], scores, count=SLOTS)
    )
    picked_after = len(word) if row in NEVER_SUGGESTED else next(shown, len(word))
    typed.words += 1
    typed.hits += picked_after == 0
    typed.keys_with += picked_after + 1
    typed.keys_without += len(word) + 1


def make_people(count: int) -> Release:
    """Return a release of the preset's model with so many people, none of them trained."""
    config = config_from(read_tables(PRESET), PRESET)
    words = shipped_vocabulary(config.model.vocabulary_size)  # type: ignore[union-attr]  # a word model
    plan = Plan(
        run="0123456789abcdef" * 2,
        model=config.model,
        schema_sha256="00" * 32,
        vocabulary=VocabularySettings(name="test", size=len(words), sha256=words.sha256.hex()),
        training=config.training,
        personalisation=config.personalisation,
        privacy=config.privacy,
        cohort_size=2,
        seed=1,
    )
    plan = msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())
    half = build_server_half(
        plan.personalisation, download_schema(plan), model=plan.model, run_seed=plan.seed
    )
    assert isinstance(half, HypernetworkHalf)
    assert isinstance(plan.personalisation, FedTpSettings)
    generator = torch.Generator().manual_seed(1)
    size = plan.personalisation.hypernetwork.embedding_size
    for number in range(count):
        half.adopt(f"person-{number:05d}", torch.randn(size, generator=generator))
    shared = released_schema(plan)
    start = part_of(initial_parameters(plan.model, seed=1), schema_of(plan.model), shared).numpy()
    record = ReleaseRecord(
        run=plan.run,
        round=1,
        parameters_sha256=hashlib.sha256(start.data).hexdigest(),
        schema_sha256=plan.schema_sha256,
        previous_sha256="00" * 32,
        metrics={},
        guarantee="no privacy guarantee",
    )
    state = encode_tensors({name: tensor.numpy() for name, tensor in half.state().items()})
    return Release(record, plan, words, start, None, bytes(state))


def measure_people(folder: Path, count: int) -> dict[str, float]:
    """Write everyone's file, then load one after the other as if each typed for the first time."""
    release = make_people(count)
    export_bundle(KeyboardKind(), release, folder / "shared.zip", precision="int8")
    bundle = load_bundle(folder / "shared.zip")
    graph = NextWordGraph(bundle.graph)
    files = [(f"person-{number:05d}", folder / f"{number}.zip") for number in range(count)]
    export_people(release, files[:1], resting="int8")
    started = time.perf_counter()
    export_people(release, files[1:], resting="int8")
    written = time.perf_counter() - started
    seconds, first = [], np.array([[EOS]])
    for _, path in files:
        started = time.perf_counter()
        own = load_personal_file(path).on(graph, bundle.manifest)
        own.step(first, own.fresh_state(), k=RANKED)
        seconds.append(time.perf_counter() - started)
    loads = [sys.executable, "-P", "-c", PEOPLE_PROCESS, str(folder), str(count)]
    printed = subprocess.run(loads, capture_output=True, check=True, text=True).stdout
    return {
        "people": count,
        "personal_model_kb": files[0][1].stat().st_size / KB,
        "personal_export_ms": written / (count - 1) * 1e3,
        "cold_miss_ms": float(np.median(seconds)) * 1e3,
        "cold_miss_ms_p99": float(np.percentile(seconds, 99)) * 1e3,
        "person_rss_kb": int(printed) / count / KB,
    }


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Return every figure.

    Raises:
        SystemExit: If the source holds a model that the torch side does not know.
    """
    torch.set_num_threads(1)
    keyboards = {} if arguments.only == "voices" else _measure_keyboards(arguments)
    voices = {} if arguments.only == "keyboards" else measure_speech(quick=arguments.quick)
    return {**keyboards, **voices}


def _measure_keyboards(arguments: argparse.Namespace) -> dict[str, float]:
    quick, source = arguments.quick, arguments.source
    release = make_release() if source is None else read_release(find_release(source))
    settings = release.plan.model
    if not isinstance(settings, GruLmSettings) or not settings.tied:
        raise SystemExit("the model of --source must be a tied gru_lm")
    text = load_dataset(arguments.dataset, arguments.data).test
    sentences = [sentence for user in sorted(text) for sentence in text[user]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_bundle(KeyboardKind(), release, folder / "fp32.zip")
        quantise_bundle(folder / "fp32.zip", folder / "int8.zip")
        bundles = {kind: load_bundle(folder / f"{kind}.zip") for kind in ("fp32", "int8")}
        return {
            **measure_steps(release, bundles, 500 if quick else 5_000),
            **_typing(bundles["int8"], 500 if quick else 5_000),
            **{
                f"small_{kind}_mb": bundle.manifest.files[MODEL_FILE].size_bytes / MB
                for kind, bundle in bundles.items()
            },
            "rss_mb": rest_rss_mb(folder / "int8.zip"),
            **measure_words(bundles, sentences, 1_000 if quick else 10_000),
            **measure_people(folder, 50 if quick else 1_000),
        }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="500 steps, 1,000 words and 50 people, not 1,000")
    parser.add_argument("--only", choices=("keyboards", "voices"), help="measure no more than this")
    parser.add_argument(
        "--source", type=Path, help="coordinator's folder, run folder or release to measure"
    )
    parser.add_argument("--dataset", default="manual", help="text that is typed (default: manual)")
    parser.add_argument("--data", type=Path, help="where that data set is")
    arguments = parser.parse_args()
    figures = measure(arguments)
    show_figures(figures, "Models as they are served", as_json=arguments.json)


if __name__ == "__main__":
    main()
