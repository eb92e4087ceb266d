from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from models.audio_settings import MelSettings
from models.parameters import initial_parameters, load_parameters
from models.registry import build_network, vocoder_network
from simulation.cli import main
from simulation.config import config_from
from simulation.dealing import build_population
from simulation.listening.run_vocoder import NeuralVocoder, WrongVocoderError, open_vocoder
from simulation.runner import RunOptions, run_simulation
from simulation.understanding.finished_run import open_run
from tests.edge_client.test_speech_examples import record
from tests.simulation.test_vocoder_population import MODEL, TABLES


def finished(folder: Path, **changed: Any) -> Path:  # Values of TOML.
    """Train for one round on two recordings, and return the run's folder."""
    (folder / "ann").mkdir()
    for number in range(2):
        record(folder / "ann", f"{number}", "a tone", pitch_hz=300.0 + 50 * number)
    rounds = TABLES["rounds"] | {"cap": 1, "cohort_size": 1}
    tables = TABLES | {"rounds": rounds} | changed
    config = config_from(tables, "test")
    population = build_population(config, folder / "ann")
    run_simulation(config, tables, population, folder / "run", RunOptions())
    return folder / "run"


def mel(frames: int = 6) -> torch.Tensor:
    return -5 + torch.randn(10, frames, generator=torch.Generator().manual_seed(1))


def test_the_released_network_makes_the_sound(tmp_path: Path) -> None:
    run = finished(tmp_path)

    sound = open_vocoder(run, MODEL.mel)(mel())

    network = vocoder_network(build_network(MODEL))
    load_parameters(network, MODEL.schema(), open_run(run).released)
    with torch.no_grad():
        expected = network(mel()[None])[0]
    assert_close(sound, expected)
    assert sound.shape == (5 * 64,)
    load_parameters(network, MODEL.schema(), initial_parameters(MODEL, seed=1))
    assert not torch.allclose(NeuralVocoder(network)(mel()), sound)


def test_a_vocoder_of_other_spectrograms_or_of_each_client_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongVocoderError, match=r"train it with the voice's model\.mel"):
        open_vocoder(finished(tmp_path), MelSettings())
    (tmp_path / "own").mkdir()
    personal = finished(tmp_path / "own", personalisation={"method": "fedper"})
    with pytest.raises(WrongVocoderError, match='has method "fedper"'):
        open_vocoder(personal, MODEL.mel)


def test_a_vocoder_that_does_not_fit_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(tmp_path)
    command = ["listen", "--copy-synthesis", "recordings", "--data", str(tmp_path / "ann")]
    command += ["--to", str(tmp_path / "heard"), "--clips", "1", "--epochs", "1"]

    # A corpus that is listened to by itself has the default's spectrograms, not this run's.
    assert main([*command, "--vocoder", str(run)]) == 1
    assert "must read the voice's spectrograms" in capsys.readouterr().err
    assert main([*command, "--vocoder", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
