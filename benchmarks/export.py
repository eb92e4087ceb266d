"""Measure an exported keyboard: a step and a suggestion against torch, agreement and sizes.

Figures (``--json`` prints them as one object):

    step_p50_ms, step_p99_ms
                     One word read and every word ranked by the exported graph, state carried.
    torch_step_p50_ms, torch_step_p99_ms
                     The same by torch, eagerly, in inference mode.
    versus_torch     torch_step_p50_ms over step_p50_ms.
    suggestion_p50_ms, suggestion_p99_ms
                     From a text typed key by key to three suggestions: the text is split, a new
                     word is read, a begun word is completed.
    top1_agreement, top3_agreement
                     Share of the positions of a real text at which graph and torch rank the same
                     word first, and the same three words in the same order.
    largest_difference_nats
                     Largest difference of two log-probabilities at those positions.
    parameters_mb, graph_mb, bundle_mb
                     The weights alone, ``model.onnx``, and the whole bundle as .zip; 1 MB = 10^6.
    export_s, load_ms
                     From release to bundle, comparison with torch included; from bundle to the
                     first suggestion, digests checked.
    rss_mb           Resident memory of a process that has loaded the bundle and suggests.

One thread on each side, a hundred steps of one and then of the other in turns. The model is the
tied GRU of width 300 with 10,000 words after one client's round on 8,870 tokens of the manual
inside CPython; ``--source`` takes a trained one. The text is the manual's test split.
"""

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import torch

from benchmarks.client import CLIENT, MODEL, make_work
from benchmarks.comparators.torch_step import TorchStep
from benchmarks.parts.figures import benchmark_parser, show_figures
from edge_client.datasets.registry import load_dataset
from edge_client.training.local_round import LocalTrainer
from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.bundles.manifest import MODEL_FILE
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.releases.release import Release, find_release, read_release
from export.runtime.next_word import NextWords
from export.runtime.word_graph import NextWordGraph, Prediction
from models.networks.flat_parameters import initial_parameters
from models.plan.release_record import ReleaseRecord
from models.settings.model import GruLmSettings, schema_of
from models.text.vocabulary import shipped_vocabulary
from models.vector.codec import named_tensors

RANKED = 5
WARM_STEPS = 100
BLOCK_STEPS = 100
MB = 1e6
REST_PROCESS = """
import sys
from pathlib import Path
from export.bundles.keyboard_bundle import load_bundle
from export.runtime.next_word import NextWords
from export.runtime.word_graph import NextWordGraph
bundle = load_bundle(Path(sys.argv[1]))
keyboard = NextWords(NextWordGraph(bundle.graph), bundle.vocabulary)
for end in range(40):
    keyboard.suggest("the value of the first item is returned"[:end])
del bundle
print("ready", flush=True)
sys.stdin.read()
"""


def make_release() -> Release:
    """Return a model that one client has trained a little, as a release."""
    work = make_work(8_870, "float32", ("manual", None))
    start = initial_parameters(MODEL, seed=0)
    update = (
        LocalTrainer(work.plan).train(start, work.stream, round_number=1, client_name=CLIENT).update
    )
    parameters = (start + update).numpy()
    record = ReleaseRecord(
        run=work.plan.run,
        round=1,
        parameters_sha256=hashlib.sha256(parameters.data).hexdigest(),
        schema_sha256=work.plan.schema_sha256,
        previous_sha256="00" * 32,
        metrics={},
        guarantee="no privacy guarantee",
    )
    return Release(record, work.plan, shipped_vocabulary(MODEL.vocabulary_size), parameters, None)


def test_sentences() -> list[list[str]]:
    """Return the sentences of the manual's test split, in the order of its users."""
    text = load_dataset("manual").test
    return [sentence for user in sorted(text) for sentence in text[user]]


def measure_steps(release: Release, bundle: Bundle, steps: int) -> dict[str, float]:
    """Read a real text word by word on both sides, a block of words at a time."""
    graph = NextWordGraph(bundle.graph)
    tensors = named_tensors(schema_of(release.plan.model), np.array(release.parameters))
    torch_step = TorchStep({name: torch.from_numpy(tensor) for name, tensor in tensors.items()})
    stream = bundle.vocabulary.token_stream(test_sentences())[: steps + WARM_STEPS]
    read = np.array(stream)[:, np.newaxis, np.newaxis]
    state, torch_state = graph.fresh_state(), None
    seconds, torch_seconds, agreed = [], [], []
    for start in range(0, len(read), BLOCK_STEPS):
        block = read[start : start + BLOCK_STEPS]
        found, expected = [], []
        for tokens in block:
            started = time.perf_counter()
            found.append(graph.step(tokens, state, k=RANKED))
            seconds.append(time.perf_counter() - started)
            state = found[-1].state
        for tokens in torch.from_numpy(block):
            started = time.perf_counter()
            *ranked, torch_state = torch_step(tokens, torch_state, RANKED)
            torch_seconds.append(time.perf_counter() - started)
            expected.append(ranked)
        agreed += [compare(*sides) for sides in zip(found, expected, strict=True)]
    graph_p50, graph_p99 = percentiles_ms(seconds)
    torch_p50, torch_p99 = percentiles_ms(torch_seconds)
    same_first, same_three, differences = zip(*agreed, strict=True)
    return {
        "steps": len(read) - WARM_STEPS,
        "step_p50_ms": graph_p50,
        "step_p99_ms": graph_p99,
        "torch_step_p50_ms": torch_p50,
        "torch_step_p99_ms": torch_p99,
        "versus_torch": torch_p50 / graph_p50,
        "top1_agreement": sum(same_first) / len(read),
        "top3_agreement": sum(same_three) / len(read),
        "largest_difference_nats": max(differences),
    }


def compare(found: Prediction, expected: list[torch.Tensor]) -> tuple[bool, bool, float]:
    """Return whether the first and the first three words are the same, and the difference."""
    distribution, _, words = (tensor.numpy() for tensor in expected)
    same = found.words[0, :3] == words[0, :3]
    difference = np.abs(found.distribution - distribution).max()
    return bool(same[0]), bool(same.all()), float(difference)


def measure_typing(bundle: Bundle, keys: int) -> dict[str, float]:
    """Type a real text key by key and ask for suggestions after each."""
    keyboard = NextWords(NextWordGraph(bundle.graph), bundle.vocabulary)
    seconds = []
    for text in typed_texts(keys + WARM_STEPS):
        started = time.perf_counter()
        keyboard.suggest(text)
        seconds.append(time.perf_counter() - started)
    p50, p99 = percentiles_ms(seconds)
    return {"keys": keys, "suggestion_p50_ms": p50, "suggestion_p99_ms": p99}


def typed_texts(keys: int) -> Iterator[str]:
    """Yield what stands in the field after each key, messages of two sentences one by one."""
    sentences = test_sentences()
    count = 0
    for first, second in zip(sentences[::2], sentences[1::2], strict=False):
        message = f"{' '.join(first)}. {' '.join(second)} "
        for end in range(1, len(message) + 1):
            if count == keys:
                return
            count += 1
            yield message[:end]


def percentiles_ms(seconds: list[float]) -> tuple[float, float]:
    """Return the 50th and 99th percentile in milliseconds, the warm-up left out."""
    p50, p99 = np.percentile(seconds[WARM_STEPS:], [50, 99]) * 1e3
    return float(p50), float(p99)


def measure_sizes(release: Release, target: Path) -> dict[str, float]:
    """Export a bundle, load it, and let a process of its own suggest from it."""
    started = time.perf_counter()
    manifest = export_bundle(KeyboardKind(), release, target)
    export_s = time.perf_counter() - started
    started = time.perf_counter()
    bundle = load_bundle(target)
    NextWords(NextWordGraph(bundle.graph), bundle.vocabulary).suggest("")
    load_ms = (time.perf_counter() - started) * 1e3
    return {
        "parameters_mb": schema_of(release.plan.model).payload_bytes / MB,
        "graph_mb": manifest.files[MODEL_FILE].size_bytes / MB,
        "bundle_mb": target.stat().st_size / MB,
        "export_s": export_s,
        "load_ms": load_ms,
        "rss_mb": rest_rss_mb(target),
    }


def rest_rss_mb(target: Path) -> float:
    """Return the resident memory of a process that suggests from a bundle, in MB."""
    rest = [sys.executable, "-P", "-c", REST_PROCESS, str(target)]
    pipe = subprocess.PIPE
    with subprocess.Popen(rest, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        # From outside: what measures would be a part of it.
        resident: int = psutil.Process(process.pid).memory_info().rss
        process.stdin.close()
    return resident / MB


def measure(source: Path | None, steps: int) -> dict[str, float]:
    """Return every figure.

    Raises:
        SystemExit: If the source holds a model that the torch side does not know.
    """
    torch.set_num_threads(1)
    release = make_release() if source is None else read_release(find_release(source))
    settings = release.plan.model
    if not isinstance(settings, GruLmSettings) or not settings.tied:
        raise SystemExit("the model of --source must be a tied gru_lm")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "keyboard.zip"
        figures = measure_sizes(release, target)
        bundle = load_bundle(target)
    return {
        **measure_steps(release, bundle, steps),
        **measure_typing(bundle, 2 * steps),
        **figures,
    }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="500 steps instead of 5,000")
    parser.add_argument(
        "--source", type=Path, help="coordinator's folder, run folder or release to measure"
    )
    arguments = parser.parse_args()
    figures = measure(arguments.source, 500 if arguments.quick else 5_000)
    show_figures(figures, "An exported keyboard", as_json=arguments.json)


if __name__ == "__main__":
    main()
