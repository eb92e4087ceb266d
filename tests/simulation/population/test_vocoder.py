"""Speakers become clients of a vocoder, in simulation and on devices."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from torch import Tensor

from edge_client.child.own_sounds import OwnSounds
from edge_client.datasets.text_set import DatasetError
from models.settings.audio import MelSettings
from models.settings.vocoder import VocoderSettings
from models.tasks.metrics import Counts
from simulation.config.simulation import config_from, preset_text, read_tables
from simulation.figures.metrics import read_metrics
from simulation.figures.vocoder_figures import vocoder_figures
from simulation.population.dealing import build_population
from simulation.population.population import PopulationError
from simulation.runs.runner import RunOptions, run_simulation
from tests.edge_client.datasets.test_speech_examples import record

MODEL = VocoderSettings(
    mel=MelSettings(
        sample_rate_hz=4000,
        fft_size=128,
        window_size=128,
        hop_size=64,
        mel_count=10,
        highest_hz=2000.0,
    ),
    width=8,
    hidden_size=16,
    block_count=1,
    segment_size=1280,
)
TABLES: dict[str, Any] = {
    "seed": 1,
    "task": "vocoder",
    "data": {"dataset": "recordings", "partition": "users"},
    "model": msgspec.to_builtins(MODEL),
    "training": {"optimiser": "adam", "learning_rate": 0.003, "batch_size": 4},
    "privacy": {"mode": "none"},
    "aggregation": {"rule": "mean"},
    "rounds": {"cap": 3, "cohort_size": 2, "quorum": 1, "deadline_s": 60.0},
    "evaluation": {"kind": "public", "public_text": "valid", "keep_best": False},
}


@pytest.fixture
def voices(tmp_path: Path) -> Path:
    """Three clips of half a second of one speaker, and two of a quarter of another."""
    for speaker, count, seconds in (("ann", 3, 0.5), ("bob", 2, 0.25)):
        (tmp_path / "voices" / speaker).mkdir(parents=True)
        for number in range(count):
            folder = tmp_path / "voices" / speaker
            record(folder, f"{number}", "a tone", seconds=seconds, pitch_hz=300.0 + 40 * number)
    return tmp_path / "voices"


def test_clips_become_segments_of_their_speakers(voices: Path) -> None:
    population = build_population(config_from(TABLES, "test"), voices)

    # A tenth of five clips, rounded, is none. Half a second at 4 kHz is 2,000 samples, so two
    # segments of 1,280; a quarter is shorter than one.
    shapes = [own.shape for own in population.clients.values() if isinstance(own, Tensor)]
    assert shapes == [(6, 1280), (2, 1280)]
    short = population.clients["device-0002"]
    assert isinstance(short, Tensor)
    assert not short[:, 1010:].any()
    assert short[:, :900].abs().mean() > 0.01


def test_a_federation_makes_better_sound_round_by_round(voices: Path, tmp_path: Path) -> None:
    for number in range(3, 12):
        record(voices / "ann", f"{number}", "a tone", pitch_hz=300.0 + 10 * number)
    config = config_from(TABLES, "test")
    population = build_population(config, voices)

    final = run_simulation(config, TABLES, population, tmp_path / "out", RunOptions())

    rows = read_metrics(tmp_path / "out")
    distances = [float(row["spectral_distance"] or 0) for row in rows]
    assert distances[0] > distances[-1] > 0
    assert final["test_spectral_distance"] == pytest.approx(distances[-1])
    assert not {"test_perplexity", "accuracy"} & set(final)


def test_figures_pool_segments_and_name_the_worst_client() -> None:
    counts = {
        "device-0001": Counts(token_count=3, log_loss_sum=3.0),
        "device-0002": Counts(token_count=1, log_loss_sum=5.0),
        "device-0003": Counts(),
    }

    # 8 over 4 segments; the mean of 1 and 5; the worst of two clients.
    assert vocoder_figures(counts) == {
        "spectral_distance": 2.0,
        "spectral_distance_clients_mean": 3.0,
        "spectral_distance_clients_worst_decile": 5.0,
    }
    assert vocoder_figures({}) == {}


def test_a_device_trains_on_four_fifths_of_its_recordings(tmp_path: Path) -> None:
    for number in range(10):
        record(tmp_path, f"{number}", "a tone", seconds=0.5)

    own = OwnSounds.read(tmp_path, MODEL)

    assert own.training().shape == (16, 1280)
    assert own.held_out().shape == (4, 1280)


def test_a_device_with_one_recording_has_none_to_score(tmp_path: Path) -> None:
    record(tmp_path, "one", "a tone")
    own = OwnSounds.read(tmp_path, MODEL)

    assert len(own.training()) == 2
    with pytest.raises(DatasetError, match="at least 1 to score on, got 0"):
        own.held_out()


def test_silence_and_a_rate_without_speech_are_refused(voices: Path) -> None:
    config = config_from(TABLES, "test")
    record(voices / "ann", "flat", "a tone", pitch_hz=0.0)
    with pytest.raises(DatasetError, match=r"flat\.wav: it must have sound, got silence alone"):
        build_population(config, voices)
    record(voices / "ann", "flat", "a tone", rate=4000)
    with pytest.raises(DatasetError, match=r"flat\.wav must have 8000 to 192000 samples"):
        build_population(config, voices)


def test_another_model_is_refused(voices: Path) -> None:
    tables = TABLES | {"model": {"family": "seq2seq", "symbol_count": 9}}
    with pytest.raises(PopulationError, match=r'needs model\.family = "vocoder"'):
        build_population(config_from(tables, "test"), voices)


def test_the_preset_is_a_federation_of_voices() -> None:
    config = config_from(read_tables("vocoder-espeak"), "vocoder-espeak")

    # Embedding, norm, three blocks, norm, head: 96 and 288 wide, see the default's count.
    blocks = 3 * (96 * 8 + 192 + 96 * 288 + 288 + 288 * 96 + 96 + 96)
    expected = 80 * 7 * 96 + 96 + 192 + blocks + 192 + 96 * 1026 + 1026
    assert config.model.schema().element_count == expected == 323_970
    assert "recordings" in preset_text("vocoder-espeak")
    assert config.data.client_count == 4
