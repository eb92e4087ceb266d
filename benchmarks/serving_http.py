"""Measure `sotto-serve`: how many keys it answers, how fast, and whether a reload drops one.

Figures (``--json`` prints them as one object):

    clients          People who type, each with a token, a connection and a text of their own.
    http_rps         Keys answered in a second, all asking again as soon as they are answered.
    bare_rps         The same people asking for ``/v2/health/live``: what HTTP alone can do here.
    versus_bare      http_rps over bare_rps.
    crowd_p99_ms     From a key to its words in that crowd: every one waits behind all others.
    paced_rps        Half of http_rps, now asked evenly over time.
    http_p50_ms, http_p99_ms
                     From the moment a key was due to its words, at that pace.
    reload_s         From the end of `sotto-serve promote` to the first answer by the new version,
                     the longest of three.
    reload_requests  Keys answered while two versions were exchanged three times.
    reload_p99_ms    What they took, in the crowd.
    personal_rps, personal_p50_ms, personal_p99_ms
                     The same, paced, where everyone has their own attention (FedTP, int8 files).
    personal_rss_mb  Resident memory of the server with everyone's own tensors.
    personal_loads   Personal files that had to be loaded for that.
    personal_reload_s, personal_reload_requests, personal_reload_p99_ms
                     As reload_..., everyone's own file going with each version.
    parallel         Requests sent at one moment, each on a connection of its own.
    http_errors      Answers of all these that were no 200, and requests without an answer.
    step_alone_ms, step_of_8_ms
                     One text's share of a GRU step alone, and in a batch of eight: what putting
                     requests of different people into one call could save where a word ends.
    word_ends        Share of the keys typed that end a word, so that a step is needed.
    rss_mb           Resident memory of the server with everyone's text, 1 MB = 10^6.

Server and clients share the cores of this machine, so both cost. The shared model is the tied GRU
of width 300 with 10,000 words; the personal one has the size of the preset ``fedtp-keyboard``.
Nobody trained them: it changes no time. The texts are the test split of the manual inside CPython.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from benchmarks.export import MB, test_sentences
from benchmarks.parts.figures import benchmark_parser, show_figures
from export.bundles.keyboard_bundle import load_bundle
from export.bundles.manifest import Manifest
from export.bundles.manifest_entries import FileDigest
from export.faces.personal_inputs import personal_inputs
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.people.adapter import encode_adapter
from export.people.personal_file import ADAPTER_FILE, PersonalManifest, write_personal_file
from export.releases.release import Release
from export.runtime.word_graph import NextWordGraph
from export.serve.commands import init
from export.serve.folder.folder import ServingFolder
from export.serve.folder.tokens import make_tokens
from export.serve.promotion.keyboard import promote, roll_back
from models.plan.plan import (
    Plan,
    TrainingSettings,
    VocabularySettings,
    plan_schema,
    released_schema,
)
from models.plan.release_record import ReleaseRecord
from models.settings.model import GruLmSettings, TransformerLmSettings
from models.settings.personalisation import (
    FedTpSettings,
    GlobalSettings,
    PersonalisationSettings,
)
from models.text.vocabulary import shipped_vocabulary
from privacy.noise.settings import NoNoise

RUN = "0123456789abcdef" * 2
SHARED = GruLmSettings(vocabulary_size=10_000, hidden_size=300, tied=True)
PERSONAL = TransformerLmSettings(
    vocabulary_size=2_500,
    model_size=64,
    head_count=4,
    layer_count=2,
    feedforward_size=128,
    context_size=32,
    tied=False,
)
_CHECKOUT = Path(__file__).resolve().parents[1]
_COMMAND = "import sys; from export.serve.cli import main; sys.exit(main())"
_NO_LIMITS = {
    "8080": "0",
    "8082": "0",
    "requests_per_second = 30.0": "requests_per_second = 1e6",
    "burst = 60": "burst = 1000000",
    "body_s = 10.0": "body_s = 60.0",
}


def make_release(
    model: GruLmSettings | TransformerLmSettings,
    personalisation: PersonalisationSettings,
    round_number: int,
) -> Release:
    """Return a release that nobody trained."""
    words = shipped_vocabulary(model.vocabulary_size)
    named = VocabularySettings(name="english-10k", size=len(words), sha256=words.sha256.hex())
    plan = Plan(
        run=RUN,
        model=model,
        schema_sha256="00" * 32,
        vocabulary=named,
        training=TrainingSettings(learning_rate=1.0, batch_size=1, bptt_steps=5),
        personalisation=personalisation,
        privacy=NoNoise(),
        cohort_size=2,
        seed=1,
    )
    plan = msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())
    draw = np.random.default_rng(round_number)
    parameters = 0.1 * draw.standard_normal(released_schema(plan).element_count, np.float32)
    record = ReleaseRecord(
        run=RUN,
        round=round_number,
        parameters_sha256=hashlib.sha256(parameters.data).hexdigest(),
        schema_sha256=plan.schema_sha256,
        previous_sha256="00" * 32,
        metrics={"top3_recall": 0.2},
        guarantee="no privacy guarantee",
    )
    return Release(record, plan, words, parameters, None)


def write_people(folder: Path, bundle: Manifest, clients: Sequence[str]) -> None:
    """Write a personal file for each client, with tensors that were drawn."""
    folder.mkdir()
    schema = bundle.personal_schema
    for number, client in enumerate(clients):
        draw = np.random.default_rng(number)
        tensors = {
            spec.name: 0.1 * draw.standard_normal(spec.shape, np.float32) for spec in schema.tensors
        }
        adapter = encode_adapter(personal_inputs(bundle.model, tensors), "int8")
        manifest = PersonalManifest(
            client=client,
            origin="generated",
            run=bundle.run,
            round_number=bundle.round_number,
            method="fedtp",
            schema_sha256=schema.sha256.hex(),
            resting="int8",
            files={ADAPTER_FILE: FileDigest.of(adapter)},
        )
        write_personal_file(folder / f"{client}.zip", manifest, adapter)


def make_folder(root: Path, bundle: Path, people: Path | None = None) -> ServingFolder:
    """Make a serving folder without limits on how often a client may ask."""
    folder = ServingFolder(root)
    init(folder, authority=None)
    text = folder.settings.read_text()
    for old, new in _NO_LIMITS.items():
        text = text.replace(old, new)
    folder.settings.write_text(text)
    put(folder, bundle, people)
    return folder


def put(folder: ServingFolder, bundle: Path, people: Path | None = None) -> None:
    """Promote a bundle."""
    given = [] if people is None else [people]
    promote(folder, bundle, metric="top3_recall", held_out=None, people=given, largest_loss=0)


class Server:
    """Hold a server in a process of its own."""

    def __init__(self, folder: ServingFolder) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _COMMAND, str(folder.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=_CHECKOUT,
            env=os.environ | {"PYTHONPATH": str(_CHECKOUT)},
        )
        assert self.process.stdout is not None
        # Where it answers, over gRPC too if it does, and where its figures are.
        urls = [self.process.stdout.readline().rpartition(" ")[2].strip()]
        while not urls[-1].endswith("/metrics"):
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("the server did not start")
            urls.append(line.rpartition(" ")[2].strip())
        self.address, self.grpc_address = (url.rpartition("/")[2] for url in urls[:2])
        self._metrics_page = urls[-1].removeprefix("http://")

    def metric(self, name: str) -> float:
        """Return one figure of the server's own."""
        with urllib.request.urlopen(f"http://{self._metrics_page}") as answer:
            lines: list[str] = answer.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(name + " ")).split()[-1])

    @property
    def rss_mb(self) -> float:
        """Return its resident memory."""
        return float(psutil.Process(self.process.pid).memory_info().rss / MB)

    def ask(
        self, people: str, *, path: str, seconds: float, count: int, rate: float | None = None
    ) -> dict[str, Any]:
        """Let people ask from a process of their own; return what they counted."""
        more = [] if rate is None else [str(rate)]
        given = [self.address, path, str(seconds), str(count), *more]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.parts.http_load", *given],
            input=people,
            capture_output=True,
            text=True,
            check=True,
            cwd=_CHECKOUT,
        )
        counted: dict[str, Any] = json.loads(done.stdout)
        return counted


@contextlib.contextmanager
def running(folder: ServingFolder) -> Iterator[Server]:
    """Run a server."""
    server = Server(folder)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


def people_who_type(folder: ServingFolder, clients: Sequence[str]) -> str:
    """Give each client a token and a text; return them as the load generator reads them."""
    sentences = [" ".join(sentence) for sentence in test_sentences() if len(sentence) > 4]
    tokens = make_tokens(folder, clients).values()
    return "".join(
        f"{token}\t{sentences[number % len(sentences)]}\n" for number, token in enumerate(tokens)
    )


def failed(counted: dict[str, Any]) -> int:
    """Return how many questions were not answered as they should be."""
    return int(counted["errors"] + counted["dropped"])


def measure_shared(
    root: Path, clients: Sequence[str], seconds: float, parallel: int
) -> dict[str, float]:
    """Serve one model to everyone: crowd, pace, reload, and everyone at one moment."""
    bundles = [root / f"{number}.zip" for number in (1, 2)]
    for number, bundle in enumerate(bundles, start=1):
        export_bundle(KeyboardKind(), make_release(SHARED, GlobalSettings(), number), bundle)
    folder = make_folder(root / "shared", bundles[0])
    people = people_who_type(folder, clients)
    everyone: dict[str, Any] = {"count": len(clients), "seconds": seconds}
    with running(folder) as server:
        bare = server.ask(people, path="/v2/health/live", **everyone)
        crowd = server.ask(people, path="/v1/next", **everyone)
        rps, bare_rps = (len(one["seconds"]) / one["elapsed_s"] for one in (crowd, bare))
        paced = server.ask(people, path="/v1/next", rate=rps / 2, **everyone)
        reloading, reload_s = measure_reload(server, folder, bundles[1:], people, everyone)
        many = "".join(line + "\n" for line in people.splitlines() * (parallel // len(clients)))
        at_once = server.ask(many, path="/v1/next", seconds=0, count=parallel)
        rss_mb = server.rss_mb
    graph = NextWordGraph(load_bundle(bundles[0]).graph)
    typed = "".join(line.partition("\t")[2] for line in people.splitlines())
    phases = (bare, crowd, paced, reloading, at_once)
    return {
        "http_rps": rps,
        "bare_rps": bare_rps,
        "versus_bare": rps / bare_rps,
        "crowd_p99_ms": percentile_ms(crowd, 99),
        "paced_rps": rps / 2,
        "http_p50_ms": percentile_ms(paced, 50),
        "http_p99_ms": percentile_ms(paced, 99),
        "reload_s": reload_s,
        "reload_requests": len(reloading["seconds"]),
        "reload_p99_ms": percentile_ms(reloading, 99),
        "parallel": at_once["started"],
        "http_errors": sum(map(failed, phases)),
        "step_alone_ms": share_of_step_ms(graph, 1),
        "step_of_8_ms": share_of_step_ms(graph, 8),
        "word_ends": typed.count(" ") / len(typed),
        "rss_mb": rss_mb,
    }


def share_of_step_ms(graph: NextWordGraph, batch: int) -> float:
    """Return what one text of a batch costs: the median step divided by the texts."""
    state, tokens = graph.fresh_state(batch), np.full((batch, 1), 7)
    seconds = []
    for _ in range(200):
        started = time.perf_counter()
        graph.step(tokens, state, k=12)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds) * 1e3 / batch)


def measure_reload(
    server: Server,
    folder: ServingFolder,
    second: Sequence[Path],
    people: str,
    everyone: dict[str, Any],
) -> tuple[dict[str, Any], float]:
    """Exchange versions three times while everyone asks; return the count and the longest wait.

    Args:
        server: Serves the first version.
        folder: Its folder.
        second: The other version's bundle, and the folder of its people's files if there are any.
        people: People who ask, as ``http_load`` reads them.
        everyone: How many, and for how long.
    """
    waits: list[float] = []

    def exchange() -> None:
        time.sleep(everyone["seconds"] / 10)
        for change in range(3):
            if change == 0:
                put(folder, *second)
            else:
                roll_back(folder, reason="measured")
            waits.append(wait_for_round(server, 1 if change == 1 else 2))

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    longer = everyone | {"seconds": 2 * everyone["seconds"]}
    counted = server.ask(people, path="/v1/next", **longer)
    exchanging.join()
    return counted, max(waits)


def wait_for_round(server: Server, round_number: int) -> float:
    """Return after how many seconds the server says that it serves a round."""
    started = time.perf_counter()
    while server.metric("sotto_release_round") != round_number:
        time.sleep(0.02)
    return time.perf_counter() - started


def measure_personal(root: Path, clients: Sequence[str], seconds: float) -> dict[str, float]:
    """Serve everyone their own attention."""
    versions = [(root / f"personal-{number}.zip", root / f"people-{number}") for number in (1, 2)]
    for number, (bundle, files) in enumerate(versions, start=1):
        export_bundle(KeyboardKind(), make_release(PERSONAL, FedTpSettings(), number), bundle)
        write_people(files, load_bundle(bundle).manifest, clients)
    folder = make_folder(root / "personal", *versions[0])
    people = people_who_type(folder, clients)
    everyone: dict[str, Any] = {"count": len(clients), "seconds": seconds}
    with running(folder) as server:
        crowd = server.ask(people, path="/v1/next", **everyone)
        rps = len(crowd["seconds"]) / crowd["elapsed_s"]
        paced = server.ask(people, path="/v1/next", rate=rps / 2, **everyone)
        figures = {
            "personal_rps": rps,
            "personal_p50_ms": percentile_ms(paced, 50),
            "personal_p99_ms": percentile_ms(paced, 99),
            "personal_loads": server.metric("sotto_personal_loads_total"),
            "personal_rss_mb": server.rss_mb,
        }
        reloading, reload_s = measure_reload(server, folder, versions[1], people, everyone)
        return figures | {
            "personal_reload_s": reload_s,
            "personal_reload_requests": len(reloading["seconds"]),
            "personal_reload_p99_ms": percentile_ms(reloading, 99),
            "http_errors": sum(map(failed, (crowd, paced, reloading))),
        }


def percentile_ms(counted: dict[str, Any], percent: float) -> float:
    """Return a percentile of the answers' times in milliseconds."""
    return float(np.percentile(counted["seconds"], percent) * 1e3)


def measure(client_count: int, seconds: float, parallel: int) -> dict[str, float]:
    """Return every figure."""
    clients = [f"person-{number:05d}" for number in range(client_count)]
    with tempfile.TemporaryDirectory() as folder:
        shared = measure_shared(Path(folder), clients, seconds, parallel)
        personal = measure_personal(Path(folder), clients, seconds)
    errors = shared.pop("http_errors") + personal.pop("http_errors")
    return {"clients": client_count, **shared, **personal, "http_errors": errors}


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="200 people and 2 s each instead of 1,000 and 3 s")
    arguments = parser.parse_args()
    figures = measure(200, 2.0, 1_000) if arguments.quick else measure(1_000, 3.0, 10_000)
    show_figures(figures, "A server of keyboards", as_json=arguments.json)


if __name__ == "__main__":
    main()
