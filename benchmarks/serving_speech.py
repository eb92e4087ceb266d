"""Measure `sotto-serve` while it speaks: how soon, how fast, and what words wait for it.

Figures (``--json`` prints them as one object):

    first_byte_ms    From a request for speech to its first bytes of sound, alone on the server.
    rtf              Seconds until all of it is there, for a second of sound.
    words_p50_ms, words_p99_ms
                     From the moment a key was due to its words, at an even pace, nobody speaking.
    words_beside_p50_ms, words_beside_p99_ms
                     The same while as many clients as there are cores have texts said without end.
    spoken_rtf       Seconds for a second of sound of each of them meanwhile.
    errors           Answers of all these that were no 200, and requests without an answer.
    rss_mb           Resident memory of the server, 1 MB = 10^6.

Server and clients share the cores of this machine. The keyboard is the tied GRU of width 300 with
10,000 words, the voice has the paper's size in 8 bits with the vocoder of 2.4 M parameters, and its
sentences are cut off, since nobody trained any of them: it changes no time.
"""

import hashlib
import http.client
import json
import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.speaking import untrained
from benchmarks.serving_http import (
    SHARED,
    Server,
    failed,
    make_folder,
    make_release,
    people_who_type,
    percentile_ms,
    running,
)
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.making.speech import VoiceKind
from export.releases.release import Release
from export.serve.folder.folder import ServingFolder
from export.serve.folder.tokens import make_tokens
from export.serve.promotion.keyboard import promote
from models.plan.plan import Plan, TrainingSettings, plan_schema
from models.plan.release_record import ReleaseRecord
from models.settings.model import ModelSettings
from models.settings.personalisation import GlobalSettings
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from privacy.noise.settings import NoNoise

RUN = "0123456789abcdef" * 2
TYPING, PACE = 50, 100.0
# Cut off after five and a half seconds of sound.
TEXT = "See you at ten"
SAMPLE_BYTES = 2


def release_of(settings: ModelSettings, task: str) -> Release:
    """Return a release that nobody trained."""
    plan = Plan(
        run=RUN,
        task=task,
        model=settings,
        schema_sha256="00" * 32,
        training=TrainingSettings(learning_rate=1.0, batch_size=1),
        privacy=NoNoise(),
        cohort_size=2,
        seed=1,
    )
    plan = msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())
    parameters = untrained(settings)
    record = ReleaseRecord(
        run=RUN,
        round=1,
        parameters_sha256=hashlib.sha256(parameters.data).hexdigest(),
        schema_sha256=plan.schema_sha256,
        previous_sha256="00" * 32,
        metrics={"perplexity": 2.0},
        guarantee="no privacy guarantee",
    )
    return Release(record, plan, None, parameters, None)


def serving(root: Path) -> ServingFolder:
    """Make a folder that serves a keyboard and a voice to everyone."""
    export_bundle(KeyboardKind(), make_release(SHARED, GlobalSettings(), 1), root / "keyboard.zip")
    folder = make_folder(root / "serving", root / "keyboard.zip")
    voice = release_of(TransformerTtsSettings(), "speech")
    vocoder = release_of(VocoderSettings(), "vocoder")
    export_bundle(VoiceKind(vocoder), voice, root / "voice.zip", precision="int8")
    promote(folder, root / "voice.zip", largest_loss=0)
    return folder


@dataclass
class Speaker:
    """Ask for speech as one client, and count."""

    address: str
    client: str
    token: str
    first_s: list[float] = field(default_factory=list)
    rtf: list[float] = field(default_factory=list)
    errors: int = 0

    def ask(self) -> None:
        """Have one text said, and hear it to its end."""
        body = {"model": "voice", "voice": self.client, "input": TEXT, "response_format": "pcm"}
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(self.address, timeout=60)
        started = time.perf_counter()
        try:
            connection.request("POST", "/v1/audio/speech", json.dumps(body), headers)
            answer = connection.getresponse()
            first = answer.read(SAMPLE_BYTES)
            self.first_s.append(time.perf_counter() - started)
            heard = len(first + answer.read()) / SAMPLE_BYTES
            self.errors += answer.status != 200
        except (OSError, http.client.HTTPException):
            self.errors += 1
            return
        finally:
            connection.close()
        rate_hz = TransformerTtsSettings().mel.sample_rate_hz
        self.rtf.append((time.perf_counter() - started) / (heard / rate_hz))

    def ask_until(self, is_enough: threading.Event) -> None:
        """Have one text said after the other."""
        while not is_enough.is_set():
            self.ask()


def words_beside(server: Server, people: str, speakers: list[Speaker], seconds: float) -> Any:
    """Let people type while others have texts said; return what those who type counted."""
    is_enough = threading.Event()
    threads = [threading.Thread(target=one.ask_until, args=(is_enough,)) for one in speakers]
    for thread in threads:
        thread.start()
    try:
        return server.ask(people, path="/v1/next", seconds=seconds, count=TYPING, rate=PACE)
    finally:
        is_enough.set()
        for thread in threads:
            thread.join()


def measure(*, quick: bool) -> dict[str, float]:
    """Return every figure."""
    seconds = 3.0 if quick else 8.0
    with tempfile.TemporaryDirectory() as name:
        folder = serving(Path(name))
        people = people_who_type(folder, [f"person-{number:02d}" for number in range(TYPING)])
        names = [f"speaker-{number}" for number in range(len(os.sched_getaffinity(0)))]
        tokens = make_tokens(folder, names)
        with running(folder) as server:
            speakers = [Speaker(server.address, client, tokens[client]) for client in names]
            alone = Speaker(server.address, names[0], tokens[names[0]])
            for _ in range(2 if quick else 4):
                alone.ask()
            words = server.ask(people, path="/v1/next", seconds=seconds, count=TYPING, rate=PACE)
            beside = words_beside(server, people, speakers, seconds)
            rss_mb = server.rss_mb
    return {
        "first_byte_ms": 1e3 * float(np.median(alone.first_s)),
        "rtf": float(np.median(alone.rtf)),
        "words_p50_ms": percentile_ms(words, 50),
        "words_p99_ms": percentile_ms(words, 99),
        "words_beside_p50_ms": percentile_ms(beside, 50),
        "words_beside_p99_ms": percentile_ms(beside, 99),
        "spoken_rtf": float(np.median([rtf for one in speakers for rtf in one.rtf])),
        "errors": failed(words) + failed(beside) + sum(one.errors for one in [alone, *speakers]),
        "rss_mb": rss_mb,
    }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="3 s of typing instead of 8")
    arguments = parser.parse_args()
    figures = measure(quick=arguments.quick)
    show_figures(figures, "A server that speaks", as_json=arguments.json)


if __name__ == "__main__":
    main()
