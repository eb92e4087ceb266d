"""Readers of a simulation: settings, and what its runs, audits and recognisers left behind."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from models.listening.recogniser import RecogniserSettings, SpeechRecogniser
from privacy.auditing.scores import AuditError
from server.config.federation import ConfigError
from simulation.auditing.rounds_file import RoundsFile
from simulation.config.overrides import parse_override
from simulation.config.run_files import RunFileError, read_run_file
from simulation.config.simulation import config_from, read_tables
from simulation.figures.metrics import FILE_NAME, MetricsError, read_metrics
from simulation.listening.recogniser_file import (
    RecogniserFileError,
    load_recogniser,
    save_recogniser,
)
from tests.fuzz.saved import saved_arrays
from tests.fuzz.target import Prepared, Target, of_bytes, of_file

_PRESETS = Path("simulation/presets")
# Linux hands no longer argument to a command.
_LONGEST_ARGUMENT_BYTES = 128 << 10
_NAMES = ("keyboard-tiny", "fedtp-digits", "speech-espeak-one", "vocoder-espeak", "fedatt-ptb")


def targets() -> Iterator[Target]:
    """Yield this package's targets."""
    presets = [(_PRESETS / f"{name}.toml").read_bytes() for name in _NAMES]
    presets.append(b'extends = "keyboard-tiny"\n[rounds]\ncap = 3\n')
    settings = of_file(_settings, *presets, name="run.toml")
    yield Target("simulation/settings.toml", (ConfigError,), settings, ("toml",))
    # Told on the command line as it stands: an override is the command's own argument.
    override = of_bytes(_override, b"rounds.cap=10,20", b'data.dataset="folder"')
    yield Target("simulation/override", (ValueError,), override, ("toml",))
    figures = b'{"round":1,"perplexity":12.5}\n{"round":2,"perplexity":null}\n'
    rows = of_file(lambda path: read_metrics(path.parent), figures, name=FILE_NAME)
    yield Target("simulation/metrics", (MetricsError,), rows, ("json", "text"))
    counts = b'{"1":{"round":3},"2":{"round":4}}'
    kept = of_file(lambda path: read_run_file(path, dict[str, dict[str, int]]), counts)
    yield Target("simulation/run-file", (RunFileError,), kept, ("json",))
    rounds = saved_arrays(
        described=np.array("as described"),
        scores=np.zeros((2, 3)),
        included=np.ones((2, 3), bool),
        republished=np.array(0),
    )
    audited = of_file(lambda path: RoundsFile(path, "as described").read(), rounds, name="r.npz")
    yield Target("simulation/audit-rounds", (AuditError,), audited, ("npz", "zip"))
    refused = (RecogniserFileError,)
    yield Target("simulation/recogniser", refused, _recognisers, ("recogniser",))


def _settings(path: Path) -> None:
    config_from(read_tables(str(path)), str(path))


def _override(content: bytes) -> object:
    return parse_override(content[:_LONGEST_ARGUMENT_BYTES].decode("latin-1"))


def _recognisers(folder: Path) -> Prepared:
    path = folder / "recogniser.safetensors"
    tiny = SpeechRecogniser(RecogniserSettings(mel_count=4, channels=4, hidden_size=4))
    save_recogniser(path, tiny, corpus="00" * 32)
    return of_file(lambda kept: load_recogniser(kept, corpus="00" * 32), path.read_bytes())(folder)
