from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import torch

from models.listening.synthesis import synthesise
from models.networks.registry import voice_network
from models.text.speech_alphabet import encode_speech
from simulation.cli import main
from simulation.listening.run_voices import open_voices
from simulation.listening.sound_writer import write_wav
from simulation.listening.table import ListeningReport
from simulation.understanding.finished_run import open_run
from tests.simulation.listening.stand_ins import RATE, Sung

TOML = """\
seed = 1
task = "speech"

[data]
dataset = "recordings"
partition = "users"

[model]
family = "transformer_tts"
hidden_size = 8
head_count = 2
layer_count = 2
feedforward_size = 8
reduction_factor = 2
embedding_size = 6
text_channels = 6
mel_prenet_size = 6
postnet_channels = 6
postnet_layer_count = 2
norm = "layer"
speaker_size = 4

[model.mel]
sample_rate_hz = 8000
fft_size = 256
window_size = 256
hop_size = 128
mel_count = 20
highest_hz = 4000

[training]
optimiser = "adam"
learning_rate = 0.05
batch_size = 4

[privacy]
mode = "none"

[aggregation]
rule = "mean"

[rounds]
cap = 2
cohort_size = 2
quorum = 1
deadline_s = 60.0

[evaluation]
kind = "public"
public_text = "valid"
keep_best = false
"""
SINGERS = {"anna": "abcd", "ben": "ghij"}


def finished_run(folder: Path, settings: str, singers: Mapping[str, str]) -> tuple[Path, Path]:
    """Return a finished run of singers' voices, and their recordings."""
    data, toml, run = folder / "data", folder / "tiny.toml", folder / "run"
    for singer, letters in singers.items():
        for turn in range(10):
            words = letters[turn % 4 :] + letters[: turn % 4] + letters[turn // 4]
            path = data / singer / f"{turn}.wav"
            write_wav(path, torch.from_numpy(Sung(words).read().channels[:, 0]), RATE)
            path.with_suffix(".txt").write_text(words)
    toml.write_text(settings)
    command = ["run", str(toml), "--data", str(data), "--workers", "1", "--out", str(run), "--json"]
    assert main(command) == 0
    return run, data


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return finished_run(tmp_path_factory.mktemp("speech"), TOML, SINGERS)


@pytest.mark.slow
def test_everyone_speaks_with_a_voice_of_their_own(folders: tuple[Path, Path]) -> None:
    corpus, voices, *_ = open_voices(*folders)
    run = open_run(folders[0])

    (voice,) = voices
    assert voice.name == "round 2, 2+2 layers"
    # A tenth of each singer's ten; nothing that is held out was trained on.
    assert sorted(clip.speaker for clip in corpus.held_out) == ["anna", "ben"]
    assert not {clip.name for clip in corpus.held_out} & {clip.name for clip in corpus.train}
    for real in map(corpus.read, corpus.held_out):
        own = "device-0001" if real.clip.speaker == "anna" else "device-0002"
        other = "device-0002" if real.clip.speaker == "anna" else "device-0001"
        said = voice.say(real)
        expected, another = (
            synthesise(
                (network := voice_network(run.network_of(client))),
                torch.tensor(encode_speech(real.clip.text, network.settings.text)),
                generator=torch.Generator().manual_seed(1),
                longest_steps=real.mel.shape[1],
            ).mel.t()
            for client in (own, other)
        )
        assert torch.equal(said.mel, expected)
        assert not torch.equal(said.mel, another)
        assert said.attention is not None
        assert said.attention.shape == (4, said.mel.shape[1] // 2, len(real.clip.text))
        # Twice the real length is the most, and then it has not stopped.
        assert said.has_ended == (said.mel.shape[1] < 2 * real.mel.shape[1])


def test_a_finished_run_is_listened_to(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = folders
    quick = ["--clips", "1", "--epochs", "1", "--iterations", "2", "--json"]

    assert main(["listen", str(run), "--data", str(data), *quick]) == 0

    report = msgspec.json.decode(capsys.readouterr().out, type=ListeningReport)
    assert [row.kind for row in report.voices] == [
        *("reference", "ceiling", "voice", "floor", "floor")
    ]
    voice = report.voices[2]
    assert voice.diagonality is not None
    assert voice.stop_accuracy in {0, 1}
    assert report.held_out == 2
    kept = {path.name for path in (run / "listening").iterdir()}
    assert {"listening.md", "recogniser.safetensors", "round-2-2+2-layers"} <= kept


@pytest.mark.slow
def test_a_voice_that_grew_speaks_at_every_stage(tmp_path: Path) -> None:
    grows = """
[growth]
target_layer_count = 2
stage_count = 2
round_count = 4
"""
    settings = TOML.replace("cap = 2", "cap = 4") + grows

    run, data = finished_run(tmp_path, settings, SINGERS)
    corpus, voices, *_ = open_voices(run, data)

    assert [voice.name for voice in voices] == ["round 2, 1+1 layers", "round 4, 2+2 layers"]
    real = corpus.read(corpus.held_out[0])
    young, grown = (voice.say(real) for voice in voices)
    for said, layers in ((young, 1), (grown, 2)):
        assert said.attention is not None
        assert said.attention.shape[0] == 2 * layers
    assert not torch.equal(young.mel, grown.mel)


@pytest.mark.slow
@pytest.mark.parametrize("more", ["novel_share = 0.5", ""], ids=["novel", "never-drawn"])
def test_speakers_that_nobody_trained_are_left_out(tmp_path: Path, more: str) -> None:
    toml = TOML.replace("[model]\n", f"{more}\n\n[model]\n", 1)
    toml = toml.replace("cap = 2", "cap = 1").replace("cohort_size = 2", "cohort_size = 1")

    folder, data = finished_run(tmp_path, toml, SINGERS)
    corpus, _, newcomers, notes = open_voices(folder, data)

    run = open_run(folder)
    clients = {"anna": "device-0001", "ben": "device-0002"}
    known = {name for name, client in clients.items() if run.kept_by(client) is not None}
    assert len(known) == 1
    assert {clip.speaker for clip in corpus.held_out} == known
    # A recogniser may still learn from everybody.
    assert {clip.speaker for clip in corpus.train} == {"anna", "ben"}
    assert newcomers is None
    assert notes[1].startswith("1 held-out clips of 1 speakers are left out")
    assert ("sotto-simulate novel" in notes[1]) == bool(more)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ['"vanilla"', '"fedtp"\nhypernetwork = {hidden_size = 8, embedding_size = 4}']
)
def test_attention_of_ones_own_speaks_too(tmp_path: Path, method: str) -> None:
    settings = f"{TOML}\n[personalisation]\nmethod = {method}\n"

    folder, data = finished_run(tmp_path, settings, SINGERS)
    corpus, (voice,), *_ = open_voices(folder, data)

    run = open_run(folder)
    anna, ben = (voice_network(run.network_of(f"device-000{number}")) for number in (1, 2))
    mine, others = anna.decoder.state_dict(), ben.decoder.state_dict()
    attentions = [name for name in mine if name.endswith(".attention.to_qkv.weight")]
    assert attentions
    for name in attentions:
        assert not torch.equal(mine[name], others[name])
    assert torch.equal(anna.head.mel.weight, ben.head.mel.weight)
    assert voice.say(corpus.read(corpus.held_out[0])).mel.isfinite().all()


@pytest.mark.slow
def test_a_run_without_a_voice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--set", "rounds.cap=1", "--workers", "1"]
    assert main(["run", "keyboard-tiny", *run, "--out", str(tmp_path / "run"), "--json"]) == 0
    capsys.readouterr()

    assert main(["listen", str(tmp_path / "run")]) == 1
    assert 'needs a run of task "speech"' in capsys.readouterr().err
