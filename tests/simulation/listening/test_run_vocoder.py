from pathlib import Path

import pytest
import torch

from models.networks.registry import vocoder_network
from models.settings.audio import MelSettings
from simulation.cli import main
from simulation.listening.run_vocoder import NotVocoderError, open_vocoder
from simulation.listening.sound_writer import write_wav
from simulation.understanding.finished_run import open_run
from tests.simulation.listening.stand_ins import tone

MEL = MelSettings(
    sample_rate_hz=8000,
    fft_size=256,
    window_size=256,
    hop_size=128,
    mel_count=20,
    highest_hz=4000.0,
)
TOML = """\
seed = 1
task = "vocoder"

[data]
dataset = "recordings"
partition = "users"

[model]
family = "vocoder"
width = 8
hidden_size = 8
block_count = 1
segment_size = 1280

[model.mel]
sample_rate_hz = 8000
fft_size = 256
window_size = 256
hop_size = 128
mel_count = 20
highest_hz = 4000

[training]
optimiser = "adam"
learning_rate = 0.003
batch_size = 4

[privacy]
mode = "none"

[aggregation]
rule = "mean"

[rounds]
cap = 1
cohort_size = 1
quorum = 1
deadline_s = 60.0

[evaluation]
kind = "public"
public_text = "valid"
keep_best = false
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocoder")
    for number in range(2):
        path = folder / "data" / "anna" / f"{number}.wav"
        write_wav(path, tone(200.0 + 20 * number), 22_050)
        path.with_suffix(".txt").write_text("a tone")
    (folder / "tiny.toml").write_text(TOML)
    command = ["run", str(folder / "tiny.toml"), "--data", str(folder / "data")]
    command += ["--workers", "1", "--out", str(folder / "run"), "--json"]
    assert main(command) == 0
    return folder / "run"


def test_sound_is_made_by_the_run_s_network(run: Path) -> None:
    mel = torch.randn(20, 9, generator=torch.Generator().manual_seed(1)) - 5

    sound = open_vocoder(run, MEL)(mel)

    network = vocoder_network(open_run(run).network_of("device-0001"))
    with torch.no_grad():
        expected = network(mel.unsqueeze(0))[0]
    assert sound.shape == (8 * 128,)
    assert torch.equal(sound, expected)


def test_a_vocoder_of_other_spectrograms_is_refused(run: Path) -> None:
    with pytest.raises(NotVocoderError, match=r"model\.mel must be"):
        open_vocoder(run, MelSettings())
