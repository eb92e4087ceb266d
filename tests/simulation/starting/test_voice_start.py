"""``sotto-simulate voice-start``: one network for many voices, with which runs begin."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from edge_client.datasets.speech.espeak import (
    START_VOICES,
    VOICES,
    load,
    load_one,
    start_recordings,
)
from models.compression.packed_model import read_packed
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, voice_network
from models.plan.plan import TrainingSettings
from models.settings.model import schema_of
from models.settings.voice import TransformerTtsSettings
from models.tasks.speech import Speech
from models.tasks.speech_examples import SpeechClip, SpeechExamples
from server.config.plans import make_plan
from server.releases.starting_model import starting_parameters
from simulation.cli import main
from simulation.config.simulation import config_from
from simulation.starting.checkpoints import StoppedStartError
from simulation.starting.voice_clips import VoiceClips
from simulation.starting.voice_training import (
    LearntVoices,
    VoiceRecipe,
    learn_voices,
)
from tests.edge_client.datasets.test_speech_examples import VOICE
from tests.simulation.population.test_speech import TABLES

MODEL = msgspec.structs.replace(VOICE, speaker_size=4)
ADAM = TrainingSettings(optimiser="adam", learning_rate=0.05, batch_size=8)


class StoppedHereError(Exception):
    pass


def saying(level: float, count: int) -> SpeechExamples:
    """Return clips of one text, all of whose log-mels have one value."""
    frames = torch.full((4 * MODEL.reduction_factor, MODEL.mel.mel_count), level)
    return SpeechExamples.of(SpeechClip(frames, torch.tensor([1, 9, 2])) for _ in range(count))


@pytest.fixture
def two() -> VoiceClips:
    """Return a loud voice and a quiet one that say the same."""
    levels = (MODEL.mel_mean + 1, MODEL.mel_mean - 1)
    own = [saying(level, 40) for level in levels]
    together = SpeechExamples.of(one.clip(place) for one in own for place in range(40))
    speakers = torch.tensor([0] * 40 + [1] * 40)
    return VoiceClips(("loud", "quiet"), together, speakers, tuple(own), "00" * 32)


def recipe(epochs: int, model: TransformerTtsSettings = MODEL) -> VoiceRecipe:
    return VoiceRecipe(
        model=model,
        training=ADAM,
        epochs=epochs,
        seed=1,
        voices=("loud", "quiet"),
        clips_sha256="00" * 32,
    )


def mel_l1(learnt: LearntVoices, vector: torch.Tensor, clips: SpeechExamples) -> float:
    network = voice_network(build_network(MODEL))
    load_parameters(network, schema_of(MODEL), learnt.parameters)
    assert network.speaker is not None
    assert not bool(network.speaker.vector.any())
    network.speaker.vector.data.copy_(vector)
    counts = Speech().evaluate(network, [clips])
    return counts.log_loss_sum / counts.token_count


def test_one_network_learns_two_voices_and_a_vector_tells_which(
    two: VoiceClips, tmp_path: Path
) -> None:
    learnt = learn_voices(recipe(8), two, tmp_path / "kept.pt", lambda *_: None)

    loud, quiet = learnt.vectors
    # The levels lie 2 apart; with the other's vector a voice is far from its own.
    assert mel_l1(learnt, loud, two.held_out[0]) < 0.5
    assert mel_l1(learnt, quiet, two.held_out[1]) < 0.5
    assert mel_l1(learnt, quiet, two.held_out[0]) > 1.0
    assert mel_l1(learnt, loud, two.held_out[1]) > 1.0
    # Zero, where every client begins, is the middle.
    torch.testing.assert_close(loud, -quiet)


def test_one_that_is_stopped_goes_on_to_the_same_bits(two: VoiceClips, tmp_path: Path) -> None:
    def stop(done: int, loss: float) -> None:
        if done == 2:
            raise StoppedHereError

    whole = learn_voices(recipe(3), two, tmp_path / "whole.pt", lambda *_: None)
    with pytest.raises(StoppedHereError):
        learn_voices(recipe(3), two, tmp_path / "parts.pt", stop)
    passes: list[int] = []
    parts = learn_voices(
        recipe(3), two, tmp_path / "parts.pt", lambda done, loss: passes.append(done)
    )

    assert passes == [3]
    assert torch.equal(parts.parameters, whole.parameters)
    assert torch.equal(parts.vectors, whole.vectors)


def test_what_it_left_damaged_is_told(two: VoiceClips, tmp_path: Path) -> None:
    kept = tmp_path / "kept.pt"
    learn_voices(recipe(1), two, kept, lambda *_: None)
    kept.write_bytes(kept.read_bytes()[:-100])

    with pytest.raises(StoppedStartError, match=r"kept\.pt cannot be gone on with .*; remove it"):
        learn_voices(recipe(2), two, kept, lambda *_: None)


def test_voices_of_a_start_say_nothing_that_is_held_out_and_are_nobody_of_the_tests() -> None:
    pytest.importorskip("espeakng_loader")
    tested = {one.written for one in (*load(None), *load_one(None))}

    started = start_recordings(4, ["Something else."])

    assert not set(START_VOICES) & set(VOICES)
    assert [one.speaker for one in started] == [voice for voice in START_VOICES for _ in range(4)]
    assert started[1].written == "Something else."
    assert not {one.written for one in started} & tested
    assert len({one.written for one in started}) == len(started)


def test_the_command_packs_a_start_from_which_a_run_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("espeakng_loader")
    tables: dict[str, Any] = {
        **TABLES,
        "model": {
            **msgspec.to_builtins(MODEL),
            "longest_text": 160,
            "clips": {"longest_s": 10.0},
        },
        "data": {"dataset": "espeak", "partition": "users"},
    }
    preset = tmp_path / "small.toml"
    preset.write_text(_toml(tables))
    packed = tmp_path / "voices.sotto"
    command = ["voice-start", "--preset", str(preset), "--sentences", "2", "--epochs", "1"]
    command += ["--out", str(tmp_path / "out"), "--pack", str(packed)]

    assert main([*command, "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["packed_bytes"] == packed.stat().st_size
    assert 0 < told["figures"]["mel_l1"] < 10
    start = read_packed(packed)
    assert start.description.voices == START_VOICES
    config = config_from({**tables, "start_from": str(packed)}, "test")
    begun = starting_parameters(config, make_plan(config, "00" * 16))
    vector = schema_of(config.model).slices["speaker.vector"]
    shared = [*start.parameters[: vector.start], *start.parameters[vector.stop :]]
    assert begun.tolist() == pytest.approx(shared)

    assert main([*command, "--seed", "2"]) == 1
    assert "a start of other settings, voices or clips" in capsys.readouterr().err


def test_a_preset_without_voices_that_have_a_vector_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--out", str(tmp_path / "out"), "--pack", str(tmp_path / "voices.sotto")]

    assert main(["voice-start", "--preset", "speech-espeak-one", *where]) == 1

    assert "speaker_size above 0, such as speech-espeak" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def _toml(tables: dict[str, Any]) -> str:
    lines: list[str] = []
    for name, value in tables.items():
        lines.append(f"{name} = {_value(value)}")
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_value(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)
