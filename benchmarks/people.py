"""Measure ten thousand personal keyboards in one process: from adapters, and from embeddings.

Run ``python -m benchmarks.people``. Figures (``--json``):

    adapter_kb       One person's file at rest in 8 bits. 1 kB = 1,000 bytes.
    adapters_person_kb
                     Resident memory that one more person adds to a process that holds everybody's
                     tensors from such files: slope from the first 500 of 1,000 people on.
    adapters_rss_mb  Resident memory with 10,000 people, by that slope.
    adapters_cold_miss_ms
                     A person's first key: file read, checked and put on the graph, words ranked.
    everybody_mb     The file of everybody's embeddings and the hypernetwork, 10,000 people.
    embeddings_rss_mb
                     Resident memory after all 10,000 typed once, their tensors made of their
                     embeddings, the ones longest unused let go at ``personal_bytes``.
    embeddings_held  People whose tensors were in memory then.
    embeddings_cold_miss_ms
                     A person's first key: tensors made, put on the graph, words ranked.
    small_1400k_int8_mb
                     ``model.onnx`` in 8 bits of a tied GRU with 1,389,072 parameters.
    imports_rss_mb   Resident memory of a process that has loaded what suggesting needs (numpy,
                     onnxruntime, the readers of bundles), and no model.

Each measurement is a process of its own with what a server has behind its routes, the texts of the
2,000 who typed last among it (`kept_texts`). The model is that of the preset ``fedtp-keyboard``,
each part its attention, 24,576 numbers; nobody trained it: sizes and times are the same. Limits
that we hold ourselves to: 9 GB, 1 GB, 60 ms, 1.6 MB.
"""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.serving import make_people
from export.bundles.keyboard_bundle import load_bundle
from export.bundles.manifest import MODEL_FILE
from export.making.everybody import export_everybody
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.releases.release import Release
from export.serve.commands import init
from export.serve.folder.folder import ServingFolder
from export.serve.promotion.keyboard import promote
from models.networks.flat_parameters import initial_parameters
from models.plan.plan import VocabularySettings, plan_schema
from models.settings.model import GruLmSettings
from models.settings.personalisation import GlobalSettings
from models.text.vocabulary import shipped_vocabulary

MB, KB = 1e6, 1e3
PEOPLE = 10_000
PROCESS = """
import json, sys, time
from pathlib import Path
import numpy as np
import psutil
from export.serve.folder.folder import ServingFolder
from export.serve.loaded.metrics import ServingMetrics
from export.serve.loaded.people import People
from export.serve.loaded.personal_models import OwnModels
from export.serve.folder.settings import read_settings
from export.serve.loaded.keyboard_version import keyboard_shelf
folder, count, largest_bytes = ServingFolder(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
settings = read_settings(folder.settings)
shelf = keyboard_shelf(folder, settings)
shelf.reload()
metrics = ServingMetrics()
models = OwnModels(folder, metrics, largest_bytes=largest_bytes or settings.personal_bytes)
people = People(models, kept_texts=settings.kept_texts)
memory, seconds = psutil.Process().memory_info, []
rss = [memory().rss]
for number in range(count):
    started = time.perf_counter()
    people.suggest(f"person-{number:05d}", shelf.present, "the ", count=3, keep=True)
    seconds.append(time.perf_counter() - started)
    if number + 1 in (count // 2, count):
        rss.append(memory().rss)
p50, p99 = np.percentile(seconds, [50, 99])
held = metrics.personal_models._value.get()
print(json.dumps({"rss": rss, "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3, "held": held}))
"""
IMPORTS = """
import psutil
import export.bundles.keyboard_bundle, export.next_word
from export.runtime.quiet_onnxruntime import load_onnxruntime
load_onnxruntime()
print(psutil.Process().memory_info().rss)
"""


class _Served(msgspec.Struct):
    """A process's output: resident bytes before, after half and after all; first keys."""

    rss: tuple[int, int, int]
    p50_ms: float
    p99_ms: float
    held: float


def _serve(folder: ServingFolder, count: int, *, largest_bytes: int = 0) -> _Served:
    command = [sys.executable, "-P", "-c", PROCESS]
    command += [str(folder.root), str(count), str(largest_bytes)]
    return msgspec.json.decode(_printed(command), type=_Served)


def _printed(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def _promoted(root: Path, bundle: Path, people: Path) -> ServingFolder:
    folder = ServingFolder(root)
    init(folder, authority=None)
    promote(
        folder,
        bundle,
        metric="top3_recall",
        held_out=None,
        people=[people],
        largest_loss=0.5,
    )
    return folder


def _judged(release: Release) -> Release:
    """Return a release with a figure for the gate."""
    record = msgspec.structs.replace(release.record, metrics={"top3_recall": 0.0})
    return replace(release, record=record)


def measure_adapters(folder: Path, count: int) -> dict[str, float]:
    """Hold everybody's tensors from a file each."""
    release = _judged(make_people(count))
    export_bundle(KeyboardKind(), release, folder / "shared.zip", precision="int8")
    files = folder / "files"
    files.mkdir()
    names = [f"person-{number:05d}" for number in range(count)]
    export_people(release, [(name, files / f"{name}.zip") for name in names], resting="int8")
    served = _serve(
        _promoted(folder / "adapters", folder / "shared.zip", files), count, largest_bytes=1 << 40
    )
    start, half, end = served.rss
    person = (end - half) / (count - count // 2)
    return {
        "adapters_people": count,
        "adapter_kb": (files / f"{names[0]}.zip").stat().st_size / KB,
        "adapters_person_kb": person / KB,
        "adapters_rss_mb": (end + person * (PEOPLE - count)) / MB,
        "adapters_cold_miss_ms": served.p50_ms,
        "adapters_cold_miss_ms_p99": served.p99_ms,
        "start_rss_mb": start / MB,
    }


def measure_embeddings(folder: Path, count: int) -> dict[str, float]:
    """Make everybody's tensors when they type."""
    release = _judged(make_people(count))
    bundle, everybody = folder / "for-embeddings.zip", folder / "everybody.zip"
    export_bundle(KeyboardKind(), release, bundle, precision="int8")
    export_everybody(release, everybody)
    served = _serve(_promoted(folder / "embeddings", bundle, everybody), count)
    return {
        "embeddings_people": count,
        "everybody_mb": everybody.stat().st_size / MB,
        "embeddings_rss_mb": served.rss[2] / MB,
        "embeddings_held": served.held,
        "embeddings_cold_miss_ms": served.p50_ms,
        "embeddings_cold_miss_ms_p99": served.p99_ms,
    }


def measure_size(folder: Path) -> dict[str, float]:
    """Round a model of 1.4 million parameters to 8 bits."""
    words = shipped_vocabulary(10_000)
    model = GruLmSettings(vocabulary_size=len(words), hidden_size=128, tied=True)
    small = make_people(1)
    plan = msgspec.structs.replace(
        small.plan,
        model=model,
        personalisation=GlobalSettings(),
        vocabulary=VocabularySettings(name="test", size=len(words), sha256=words.sha256.hex()),
        schema_sha256="00" * 32,
    )
    plan = msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())
    parameters = initial_parameters(model, seed=1).numpy()
    target = folder / "1400k.zip"
    export_bundle(
        KeyboardKind(),
        replace(small, plan=plan, vocabulary=words, parameters=parameters, personalisation=None),
        target,
        precision="int8",
    )
    size_bytes = load_bundle(target).manifest.files[MODEL_FILE].size_bytes
    return {"small_1400k_parameters": len(parameters), "small_1400k_int8_mb": size_bytes / MB}


def measure(*, quick: bool) -> dict[str, float]:
    """Return every figure."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            **measure_adapters(folder, 50 if quick else 1_000),
            **measure_embeddings(folder, 200 if quick else PEOPLE),
            **measure_size(folder),
            "imports_rss_mb": int(_printed([sys.executable, "-P", "-c", IMPORTS])) / MB,
        }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="50 files and 200 embeddings")
    arguments = parser.parse_args()
    figures = measure(quick=arguments.quick)
    show_figures(figures, "Ten thousand people in one process", as_json=arguments.json)


if __name__ == "__main__":
    main()
